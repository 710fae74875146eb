"""Copies: what the suffix drafter may propose next, each with the chance that it is right."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from localspec.drafters.copy_rates import BINS, CopyRates, MatchTable
from localspec.drafters.drawn_copy import DrawnCopy
from localspec.drafters.passage import Passage
from localspec.drafters.suffix_automaton import Match, SuffixAutomaton


class Copy(NamedTuple):
    """A copy that may come next.

    take: returns up to so many of its tokens, and the chance of each, given that those before it
    are right; that of the first is `chance`. token: the first token. length: of the match, or since
    the last difference. tables: the chances by length that this token belongs to, first the most
    special ones. match: that it comes after; None behind a difference. predicted: whether it is of
    a prediction.
    """

    take: Callable[[int], tuple[list[int], list[float]]]
    token: int
    length: int
    tables: Sequence[MatchTable]
    match: Match | None = None
    predicted: bool = False

    @property
    def chance(self) -> float:
        """The chance that the first token is right."""
        return self.tables[0].chance(self.length)

    def as_sure_as(self, other: "Copy") -> bool:
        """Whether it begins with the same token, after as much that is equal."""
        return self.token == other.token and self.length >= min(other.length, BINS[-1])


def copy_after_match(
    texts: SuffixAutomaton, match: Match, tables: Sequence[MatchTable], later: MatchTable
) -> Copy:
    """The copy after a match. later: the table of its further tokens."""

    def take(count: int) -> tuple[list[int], list[float]]:
        tokens = texts.copy(match, count)
        return tokens, later.chances(match.length, len(tokens))

    return Copy(take, texts.tokens[match.end + 1], match.length, tables, match)


def disputed_copy(
    texts: SuffixAutomaton, match: Match, tables: tuple[MatchTable, MatchTable], other: int | None
) -> Copy:
    """The copy after a match, where there may be another copy.

    tables: of all such copies, and of those that are disputed: there is another copy, whose token
    `other` is another one.
    """
    every, disputed = tables
    token = texts.tokens[match.end + 1]
    if other is None or other == token:
        return copy_after_match(texts, match, (every,), every)
    return copy_after_match(texts, match, (disputed, every), disputed)


def copy_of_passage(
    passage: Passage, texts: SuffixAutomaton, match: Match | None, rates: CopyRates
) -> Copy | None:
    """What a passage goes on with; None at its end. match: the longest one in the same texts."""
    tokens, replaced = passage.copy(1)
    if not tokens:
        return None
    tables: Sequence[MatchTable] = (rates.replaced,)
    if not replaced:
        agree = match is not None and texts.tokens[match.end + 1] == tokens[0]
        tables = (rates.agreed if agree else rates.disputed, rates.passage)
    take = partial(_take_passage, passage, rates)
    return Copy(take, tokens[0], passage.length, tables)


def _take_passage(passage: Passage, rates: CopyRates, count: int) -> tuple[list[int], list[float]]:
    tokens, replaced = passage.copy(count)
    chances = rates.passage.chances(passage.length, len(tokens))
    for place in replaced:
        chances[place] = rates.replaced.chance(passage.length + place)
    return tokens, chances


def drawn_anew(copy: Copy, drawn: DrawnCopy) -> Copy:
    """The copy after a match, with tokens drawn anew."""
    if drawn.table is None:
        return Copy(drawn.take, copy.token, copy.length, copy.tables)
    return Copy(drawn.take, drawn.token, copy.length, (drawn.table,))


def likeliest(copies: Sequence[Copy]) -> Copy | None:
    """The copy whose first token is most likely; of several the first."""
    return max(copies, key=lambda each: each.chance, default=None)
