"""Passage: what the text repeats with differences, so that copying goes on behind a difference.

An edited text differs from its source by a renamed identifier, another number, a line more or less.
The longest match then is short, and often elsewhere. So the place in the source is kept: at a
difference, the text is expected to go on behind one differing token; when it does not, the next
token of the text is looked for in the tokens that follow in the source. Once a few tokens are equal
again, what was replaced by what is known, and the next time the same replacement is expected.
"""

from collections.abc import Sequence
from typing import NamedTuple

# A match of so many tokens begins a passage, in which copying goes on behind differences.
PASSAGE = 24
# The passage is found again when so many tokens are equal.
EQUAL = 3
# How far behind a difference the text may go on, in tokens of the source, and how many tokens of
# its own it may have there.
REACH, LONGEST = 32, 48
# The most tokens on either side of a replacement.
REPLACED = 8


class _Replacement(NamedTuple):
    """The tokens of the source, and those that the text has instead."""

    old: Sequence[int]
    new: Sequence[int]


class Passage:
    """A passage of earlier tokens that the text follows, from `start` on.

    tokens: of all texts, with negative numbers between them. It grows with the text: a token is
    added after it was observed. equal: the number of tokens before `start` that the text has too.

    differs: whether there was a difference; without one, the longest match is the same copy.
    """

    def __init__(self, tokens: Sequence[int], start: int, equal: int) -> None:
        self.differs = False
        self._tokens = tokens
        self._next = start
        self._equal = equal
        # How many new tokens of the replacement at `_next` the text has already.
        self._replaced = 0
        # By the first old token.
        self._replacements: dict[int, _Replacement] = {}
        # Where the last difference begins in the source, until a few tokens are equal again; where
        # the source seems to go on; and the text since it began.
        self._difference: int | None = None
        self._found = 0
        self._since: list[int] = []

    @property
    def length(self) -> int:
        """The number of tokens since the last difference, its last token included: at least 1."""
        return self._equal + 1

    def go_on(self, tokens: Sequence[int], start: int, equal: int) -> None:
        """Follow a passage from another place on, perhaps of other texts; replacements are kept."""
        self._tokens, self._next, self._equal = tokens, start, equal
        self.differs, self._replaced = False, 0
        self._difference, self._since = None, []

    def copy(self, count: int) -> tuple[list[int], list[int]]:
        """Return up to `count` tokens, and the places in them of those that are replaced.

        At the end of the text they go on with the copy itself; there are fewer only where a text
        has ended.
        """
        tokens, place, skipped = self._tokens, self._next, self._replaced
        end = len(tokens)
        copied: list[int] = []
        replaced: list[int] = []
        while len(copied) < count:
            if place >= end:
                copied.append(copied[place - end])
                place += 1
            elif tokens[place] < 0:
                break
            elif replacement := self._replacement(place):
                new = replacement.new[skipped:]
                replaced += range(len(copied), len(copied) + len(new))
                copied += new
                place += len(replacement.old)
            else:
                copied.append(tokens[place])
                place += 1
            skipped = 0
        return copied[:count], [each for each in replaced if each < count]

    def observe(self, token: int) -> bool:
        """Follow the text by one token. Return False where the passage has ended or is lost."""
        replacement = self._replacement(self._next)
        if replacement and replacement.new[self._replaced] == token:
            self._replaced += 1
            if self._replaced == len(replacement.new):
                self._next, self._replaced = self._next + len(replacement.old), 0
            self._add_equal(token)
        else:
            written: Sequence[int] = ()
            if replacement:
                written, self._replaced = replacement.new[: self._replaced], 0
                del self._replacements[replacement.old[0]]
            if not written and self._tokens[self._next] == token:
                self._next += 1
                self._add_equal(token)
            else:
                self._add_differing(written, token)
        # At the end of `tokens` stands the observed token itself, once it is added.
        ended = self._next < len(self._tokens) and self._tokens[self._next] < 0
        return not ended and len(self._since) <= LONGEST

    def _replacement(self, place: int) -> _Replacement | None:
        """The replacement that is expected at this place."""
        found = self._replacements.get(self._tokens[place])
        if found and list(self._tokens[place : place + len(found.old)]) == found.old:
            return found
        return None

    def _add_equal(self, token: int) -> None:
        self._equal += 1
        if self._difference is None:
            return
        self._since.append(token)
        if self._equal >= EQUAL and not self._replaced:
            old = list(self._tokens[self._difference : self._found])
            new = self._since[: -self._equal]
            if 0 < len(old) <= REPLACED and 0 < len(new) <= REPLACED:
                self._replacements[old[0]] = _Replacement(old, new)
            self._difference, self._since = None, []

    def _add_differing(self, written: Sequence[int], token: int) -> None:
        """Go on behind the differing token, or where it is found behind the difference.

        written: the tokens before it, of a replacement that turned out to be another one.
        """
        if self._difference is None:
            self._difference, self._since = self._next, [*written]
        self._since.append(token)
        self.differs, self._equal = True, 0
        start = self._difference
        self._next = self._found = start + 1
        for place in range(start, min(start + REACH, len(self._tokens))):
            if self._tokens[place] < 0:
                break
            if self._tokens[place] == token:
                self._next, self._found, self._equal = place + 1, place, 1
                break
