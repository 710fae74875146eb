"""Suffix drafter: copy the tokens after an earlier occurrence of the text's longest suffix."""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from localspec.drafters.suffix_automaton import Match, SuffixAutomaton
from localspec.errors import InvalidValueError
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import Limit, Outcome, Traits
from localspec.utils.tokens import common_prefix

# Bins of match lengths: each starts at one of these lengths; the last bin has no upper end.
BINS = (1, 2, 3, 4, 6, 9, 13, 21, 41)
# A typical share of right copies by bin, over code, prose and JSON. It counts as PRIOR_WEIGHT
# observations.
PRIOR = (0.20, 0.35, 0.45, 0.55, 0.65, 0.80, 0.88, 0.93, 0.96)
PRIOR_WEIGHT = 4.0
# With each new observation of a bin, its older ones count this much less: about 100 count.
FORGETTING = 0.99
# After a text is cut, this many tokens before the cut are pushed again, so that matches right after
# the cut are long.
CONTEXT = 64


class MatchTable:
    """The probability that the next copied token is right, by the length of the match before it.

    state: (right, tried) per bin, as `MatchTable.state` returns it; None starts from PRIOR.

    Raises InvalidValueError for an impossible state.
    """

    def __init__(self, state: Sequence[tuple[float, float]] | None = None) -> None:
        counts = [(0.0, 0.0)] * len(BINS) if state is None else list(state)
        if len(counts) != len(BINS) or not all(0 <= right <= tried for right, tried in counts):
            raise InvalidValueError(f"state is {state}; it must be {len(BINS)} (right, tried)")
        self._counts = counts
        # Entry i: the chance after a match of i tokens; the last entry is for all longer matches.
        self._chances = [0.0] * (BINS[-1] + 1)
        for bin_ in range(len(BINS)):
            self._refresh(bin_)

    @property
    def state(self) -> tuple[tuple[float, float], ...]:
        """(right, tried) per bin, with less weight for older observations, to restore a table."""
        return tuple(self._counts)

    def learn(self, length: int, right: bool) -> None:
        """Learn whether the token copied after a match of `length` tokens was right."""
        bin_ = bisect_right(BINS, length) - 1
        hits, tried = self._counts[bin_]
        self._counts[bin_] = (FORGETTING * hits + right, FORGETTING * tried + 1)
        self._refresh(bin_)

    def chances(self, length: int, count: int) -> list[float]:
        """Return (count,) the chance that each token copied after a match is right.

        The chance of a token is given that the tokens before it are right: they lengthen the match.
        """
        first = min(length, BINS[-1])
        chances = self._chances[first : first + count]
        return chances + self._chances[-1:] * (count - len(chances))

    def _refresh(self, bin_: int) -> None:
        right, tried = self._counts[bin_]
        chance = (right + PRIOR_WEIGHT * PRIOR[bin_]) / (tried + PRIOR_WEIGHT)
        first, after = _LENGTHS[bin_]
        self._chances[first:after] = [chance] * (after - first)


_LENGTHS = tuple(pairwise((*BINS, BINS[-1] + 1)))


class Suffix:
    """Copies the tokens after an earlier occurrence of the text's longest repeated suffix.

    shortest: the shortest match to copy after, in tokens.
    past: texts of earlier conversations to copy from too, the oldest first.
    table: the chances learnt before; it is updated in place.
    max_replaced: the most tokens kept of texts that were cut off or replaced.

    An automaton cannot be cut back cheaply, and a text that was cut off is worth keeping: an answer
    that is generated again often repeats the old one. So the old text stays, as a text of its own,
    and the new text is pushed from CONTEXT tokens before the cut. When there are more than
    `max_replaced` old tokens, the automaton is built again from the past and the current text.

    Time per token pushed: about 2 us. Memory per token of past, current and old texts: about 140
    bytes.
    """

    name = "suffix"

    def __init__(
        self,
        *,
        shortest: int = 1,
        past: Iterable[Sequence[int]] = (),
        table: MatchTable | None = None,
        max_replaced: int = 65_536,
    ) -> None:
        if shortest < 1:
            raise InvalidValueError(f"shortest is {shortest}; it must be 1 or more")
        if max_replaced < 0:
            raise InvalidValueError(f"max_replaced is {max_replaced}; it must be 0 or more")
        self.traits = Traits(cheap=True, chances=self.chances)
        self.table = MatchTable() if table is None else table
        self._shortest = shortest
        self._max_replaced = max_replaced
        self._past = [array("i", text) for text in past]
        self._text: list[int] = []
        # False while the automaton is being changed: an interrupt would leave it unusable.
        self._consistent = True
        self._automaton = self._with_past()
        self._past_length = len(self._automaton.tokens)

    def begin(self, tokens: Sequence[int]) -> None:
        """Change to this text; keep the text that it replaces, up to `max_replaced` tokens."""
        shared = common_prefix(self._text, tokens)
        consistent, self._consistent = self._consistent, False
        if not consistent:
            start = self._rebuild()
        elif shared < len(self._text):
            start = self._cut(shared)
        else:
            start = shared
        self._automaton.extend(tokens[start:])
        self._text[shared:] = tokens[shared:]
        self._consistent = True

    def forget(self) -> None:
        """Forget the current text and those it replaced; `past` and the learnt chances stay."""
        self._consistent = False
        self._rebuild()
        self._text = []
        self._consistent = True

    def propose(self, limit: Limit) -> Draft:
        """Copy up to `limit.depth` tokens."""
        match = self._match()
        return Draft(self._automaton.copy(match, limit.depth)) if match else NOTHING

    def chances(self, depth: int) -> Sequence[float]:
        """The chance that each token of a proposal is right, given that those before it are.

        There are as many as `propose` would propose with this depth. The product of the first n is
        the chance that n tokens are accepted.
        """
        match = self._match()
        if match is None:
            return ()
        return self.table.chances(match.length, self._automaton.copy_length(match, depth))

    def observe(self, outcome: Outcome) -> None:
        """Append the committed tokens, and learn whether it would have copied each of them."""
        automaton, self._consistent = self._automaton, False
        for token in outcome.tokens:
            match = automaton.match()
            if match:
                self.table.learn(match.length, automaton.tokens[match.end + 1] == token)
            automaton.push(token)
        self._text.extend(outcome.tokens)
        self._consistent = True

    def _match(self) -> Match | None:
        match = self._automaton.match()
        return match if match and match.length >= self._shortest else None

    def _cut(self, shared: int) -> int:
        """Cut the text after `shared` tokens; return from where on to push the new text."""
        start = max(0, shared - CONTEXT)
        held = len(self._automaton.tokens) - self._past_length
        if held + 1 - start > self._max_replaced:
            return self._rebuild()
        self._automaton.end_text()
        return start

    def _rebuild(self) -> int:
        """Build the automaton again from the past; return from where on to push the text: 0."""
        self._automaton = self._with_past()
        return 0

    def _with_past(self) -> SuffixAutomaton:
        automaton = SuffixAutomaton()
        for text in self._past:
            automaton.extend(text)
            automaton.end_text()
        return automaton
