"""Suffix automaton: finds the longest suffix of a text that occurred before, token by token.

Blumer et al. 1985 ("The smallest automaton recognizing the subwords of a text"); for drafting see
Hu et al. 2024 ("SAM Decoding"). A state stands for all strings that end at the same positions of
the text. Its suffix link leads to the state of their longest suffix that ends at other positions
too. So the suffix link of the last state is the longest suffix that occurred before.

Most states have one transition, stored in two flat arrays. Only states with more transitions have a
dict. This takes about a fifth of the memory of a dict per state, and a quarter more time.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from localspec.errors import InvalidValueError

_ROOT, _NONE = 0, -1
# What is known of the tokens after the last two occurrences of a state's longest string.
_UNKNOWN, _DIFFERENT, _EQUAL = 0, 1, 2
_AGREED = {_UNKNOWN: None, _DIFFERENT: False, _EQUAL: True}


class Match(NamedTuple):
    """An earlier occurrence of the text's last tokens.

    length: the number of tokens, at least 1. end: the index in `tokens` of the occurrence's last
    token; a token of the same text follows it. agreed: whether the token after it is the one that
    followed the occurrence before it; None: no such occurrence was seen.
    """

    length: int
    end: int
    agreed: bool | None = None


class Position(NamedTuple):
    """Where a text that is not in the index stands in it: its longest end that occurs there.

    length: of this end, in tokens. state: of the automaton. It stays valid while the index grows,
    though the state of so short an end may be another one then.
    """

    state: int
    length: int


NOWHERE = Position(_ROOT, 0)


class SuffixAutomaton:
    """An index of several texts, which finds where the last text repeats itself or another one.

    tokens: all tokens pushed, with a different negative number after each ended text.

    No match and no copy crosses the end of a text.
    """

    def __init__(self) -> None:
        self.tokens = array("i")
        self._closed: list[int] = []  # where in `tokens` the separators are
        self._last = _ROOT
        # One entry per state.
        self._length = array("i", [0])
        self._link = array("i", [_NONE])
        self._end = array("i", [_NONE])
        self._agreed = array("b", [_UNKNOWN])
        # The only transition of a state; `_branches` has those of states with more than one.
        self._token = array("i", [0])
        self._target = array("i", [_NONE])
        self._branches: dict[int, dict[int, int]] = {}

    def extend(self, tokens: Iterable[int]) -> None:
        """Push tokens."""
        for token in tokens:
            self.push(token)

    def read(self, tokens: Iterable[int]) -> None:
        """Push those of a prompt. No match and no copy crosses a row of an image, below 0."""
        for token in tokens:
            if token < 0:
                self.end_text()
            else:
                self.push(token)

    def push(self, token: int) -> None:
        """Append one token. Raises InvalidValueError for a negative one."""
        if token < 0:
            raise InvalidValueError(f"token is {token}; it must be 0 or more")
        # From now on this position is the occurrence of the longest repeat. Not earlier: there is
        # nothing to copy before a token follows. And not for its shorter suffixes: each keeps the
        # position where it was the longest repeat itself, which predicts better than its most
        # recent position (5.5 against 3.9 tokens per step on JSON).
        match = self._link[self._last]
        if match > _ROOT:
            known = self.tokens[self._end[match] + 1]
            if known >= 0:
                self._agreed[match] = _EQUAL if known == token else _DIFFERENT
            self._end[match] = len(self.tokens) - 1
        self._append(token)

    def end_text(self) -> None:
        """End the text: tokens pushed from now on belong to another text."""
        self._closed.append(len(self.tokens))
        self._append(-len(self._closed))

    def match(self) -> Match | None:
        """The longest suffix of the text that occurred before, with a token after it.

        Of its occurrences, the most recent one where this suffix was the longest repeat too.
        """
        state = self._link[self._last]
        while state > _ROOT:
            end = self._end[state]
            if self.tokens[end + 1] >= 0:
                return Match(self._length[state], end, _AGREED[self._agreed[state]])
            state = self._link[state]
        return None

    @property
    def repeat(self) -> Position:
        """Where the longest suffix of the text that occurred before is in the index."""
        state = self._link[self._last]
        return Position(state, self._length[state]) if state > _ROOT else NOWHERE

    def advance(self, position: Position, token: int) -> Position:
        """The position of another text after one more token; `NOWHERE` is that of an empty one."""
        state, length = position
        while (target := self._next(state, token)) == _NONE:
            state = self._link[state]
            if state == _NONE:
                return NOWHERE
            length = min(length, self._length[state])
        return Position(target, length + 1)

    def occurrence(self, position: Position) -> Match | None:
        """The longest end of another text that occurs here with a token after it.

        Of its occurrences, the most recent one where it was the longest repeat; else the first.
        """
        state, length = position
        while state > _ROOT:
            end = self._end[state]
            if end + 1 < len(self.tokens) and self.tokens[end + 1] >= 0:
                return Match(length, end)
            state = self._link[state]
            length = min(length, self._length[state])
        return None

    def copy(self, match: Match, count: int) -> list[int]:
        """Copy up to `count` tokens after a match; at the end of the text, go on with the copy."""
        start, length = match.end + 1, self.copy_length(match, count)
        copied = self.tokens[start : start + length].tolist()
        period = len(self.tokens) - start
        while len(copied) < length:
            copied.append(copied[len(copied) - period])
        return copied

    def copy_length(self, match: Match, count: int) -> int:
        """The number of tokens `copy` would give: fewer than `count` only from an ended text."""
        after = bisect_right(self._closed, match.end)
        if after == len(self._closed):
            return count
        return min(count, self._closed[after] - match.end - 1)

    def _append(self, token: int) -> None:
        before = self._last
        added = self._new_state(self._length[before] + 1, _ROOT, len(self.tokens))
        self.tokens.append(token)
        known = self._add_transitions(before, token, added)
        if known != _NONE:
            self._link[added] = self._state_after(known, token)
        self._last = added

    def _new_state(self, length: int, link: int, end: int) -> int:
        self._length.append(length)
        self._link.append(link)
        self._end.append(end)
        self._agreed.append(_UNKNOWN)
        self._token.append(0)
        self._target.append(_NONE)
        return len(self._length) - 1

    def _add_transitions(self, state: int, token: int, target: int) -> int:
        """Add a transition to a state and its suffixes; return the first that has one already."""
        tokens, targets, branches, links = self._token, self._target, self._branches, self._link
        while state != _NONE:
            if targets[state] == _NONE:
                tokens[state], targets[state] = token, target
            elif (others := branches.get(state)) is not None:
                if token in others:
                    return state
                others[token] = target
            elif tokens[state] == token:
                return state
            else:
                branches[state] = {tokens[state]: targets[state], token: target}
            state = links[state]
        return _NONE

    def _state_after(self, state: int, token: int) -> int:
        """The state whose longest string is the longest string of `state`, then `token`."""
        target = self._next(state, token)
        length = self._length[state] + 1
        if self._length[target] == length:
            return target
        # `target` has longer strings too, which do not end here: split it.
        clone = self._new_state(length, self._link[target], self._end[target])
        self._token[clone], self._target[clone] = self._token[target], self._target[target]
        if target in self._branches:
            self._branches[clone] = self._branches[target].copy()
        self._agreed[clone] = self._agreed[target]
        self._link[target] = clone
        while state != _NONE and self._next(state, token) == target:
            if state in self._branches:
                self._branches[state][token] = clone
            else:
                self._target[state] = clone
            state = self._link[state]
        return clone

    def _next(self, state: int, token: int) -> int:
        others = self._branches.get(state)
        if others is not None:
            return others.get(token, _NONE)
        return self._target[state] if self._token[state] == token else _NONE
