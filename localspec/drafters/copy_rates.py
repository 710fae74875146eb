"""Copy rates: how often copied tokens are right, by what is known where they are copied."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from localspec.errors import InvalidValueError

# Bins of match lengths: each starts at one of these lengths; the last bin has no upper end.
BINS = (1, 2, 3, 4, 6, 9, 13, 21, 41)
# A typical share of right copies by bin, over code, prose and JSON. It counts as PRIOR_WEIGHT
# observations.
PRIOR = (0.20, 0.35, 0.45, 0.55, 0.65, 0.80, 0.88, 0.93, 0.96)
PRIOR_WEIGHT = 4.0
# Where there is no passage behind a difference, by `Match.agreed`, over source files, prose and
# edited source files: None, True, False.
_ONCE = (0.30, 0.45, 0.53, 0.60, 0.68, 0.75, 0.85, 0.93, 0.96)
_AGREED_BEFORE = (0.50, 0.70, 0.80, 0.83, 0.88, 0.90, 0.93, 0.95, 0.97)
_DIFFERED_BEFORE = (0.12, 0.18, 0.18, 0.22, 0.24, 0.27, 0.30, 0.40, 0.50)
# Behind a difference, over edited source files and JSON: of the longest match where the passage
# goes on otherwise; of the passage where the match agrees, and where it does not; and of tokens
# that were replaced before.
_MATCH_DISPUTED = (0.20, 0.35, 0.45, 0.55, 0.65, 0.65, 0.70, 0.70, 0.70)
_AGREED = (0.60, 0.80, 0.85, 0.90, 0.90, 0.92, 0.95, 0.96, 0.97)
_DISPUTED = (0.10, 0.30, 0.40, 0.50, 0.60, 0.70, 0.75, 0.80, 0.85)
_REPLACED = (0.50, 0.70, 0.80, 0.85, 0.90, 0.90, 0.90, 0.90, 0.90)
# Of tokens drawn anew, by their lead (`drawn_copy.LEADS`); and of copies of which the target was
# sure where they are copied from, behind the first token. Over texts that two small models wrote at
# temperatures 0.8 and 1.2.
_DRAWN = (
    (0.20, 0.30, 0.33, 0.35, 0.40, 0.60, 0.65, 0.70, 0.70),
    (0.25, 0.47, 0.60, 0.58, 0.65, 0.75, 0.80, 0.85, 0.90),
    (0.40, 0.50, 0.70, 0.72, 0.80, 0.90, 0.92, 0.95, 0.97),
    (0.50, 0.65, 0.76, 0.83, 0.88, 0.95, 0.97, 0.98, 0.99),
    (0.60, 0.77, 0.81, 0.90, 0.92, 0.98, 0.98, 0.99, 0.99),
    (0.55, 0.80, 0.88, 0.95, 0.98, 0.99, 0.99, 0.99, 0.99),
)
_SURE = (0.30, 0.50, 0.65, 0.75, 0.85, 0.92, 0.96, 0.98, 0.99)
# Of past texts, over chats about the same things; and of those whose distributions are known, as
# _DRAWN and _SURE. The means over chats of two small models.
_PAST = (0.05, 0.10, 0.15, 0.25, 0.35, 0.50, 0.60, 0.70, 0.80)
_PAST_DRAWN = (
    (0.10, 0.18, 0.20, 0.21, 0.27, 0.33, 0.50, 0.60, 0.70),
    (0.11, 0.18, 0.24, 0.27, 0.28, 0.40, 0.56, 0.75, 0.85),
    (0.18, 0.27, 0.30, 0.34, 0.44, 0.48, 0.65, 0.85, 0.92),
    (0.24, 0.33, 0.45, 0.46, 0.52, 0.58, 0.80, 0.90, 0.97),
    (0.35, 0.42, 0.54, 0.55, 0.62, 0.66, 0.88, 0.95, 0.98),
    (0.45, 0.60, 0.70, 0.72, 0.80, 0.85, 0.95, 0.99, 0.99),
)
_PAST_SURE = (0.42, 0.62, 0.70, 0.72, 0.76, 0.87, 0.95, 0.99, 0.99)
# With each new observation of a bin, its older ones count this much less: about 100 count.
FORGETTING = 0.99


class MatchTable:
    """The probability that the next copied token is right, by the length of the match before it.

    state: (right, tried) per bin, as `MatchTable.state` returns it; None: nothing was observed.
    prior: the probability per bin before anything is observed.

    Raises InvalidValueError for an impossible state.
    """

    def __init__(
        self,
        state: Sequence[tuple[float, float]] | None = None,
        prior: Sequence[float] = PRIOR,
    ) -> None:
        counts = [(0.0, 0.0)] * len(BINS) if state is None else list(state)
        if len(counts) != len(BINS) or not all(0 <= right <= tried for right, tried in counts):
            raise InvalidValueError(f"state is {state}; it must be {len(BINS)} (right, tried)")
        self._counts = counts
        self._prior = prior
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

    def chance(self, length: int) -> float:
        """The chance that the token copied after a match of `length` tokens is right."""
        return self._chances[min(length, BINS[-1])]

    def chances(self, length: int, count: int) -> list[float]:
        """Return (count,) the chance that each token copied after a match is right.

        The chance of a token is given that the tokens before it are right: they lengthen the match.
        """
        first = min(length, BINS[-1])
        chances = self._chances[first : first + count]
        return chances + self._chances[-1:] * (count - len(chances))

    def _refresh(self, bin_: int) -> None:
        right, tried = self._counts[bin_]
        chance = (right + PRIOR_WEIGHT * self._prior[bin_]) / (tried + PRIOR_WEIGHT)
        first, after = _LENGTHS[bin_]
        self._chances[first:after] = [chance] * (after - first)


_LENGTHS = tuple(pairwise((*BINS, BINS[-1] + 1)))


def _table(prior: Sequence[float]) -> MatchTable:
    return MatchTable(prior=prior)


def _tables(priors: Sequence[Sequence[float]]) -> Sequence[MatchTable]:
    return tuple(map(_table, priors))


class DrawnRates(NamedTuple):
    """The chances of copies whose tokens are drawn anew.

    copied: of tokens of whose distribution nothing is known. sure: of those behind the first where
    the text is copied from had no choice. drawn: of those drawn anew, by their lead.
    """

    copied: MatchTable
    sure: MatchTable
    drawn: Sequence[MatchTable]


@dataclass(frozen=True, slots=True)
class CopyRates:
    """The chances of copies after the longest match, and of copies behind a difference.

    The length is that of the match, or `Passage.length`.

    match: of each token after the longest match. match_disputed: of those where the passage behind
    a difference goes on with another token. once, agreed_before, differed_before: of the first
    token after the longest match where there is no such passage, by `Match.agreed`.
    passage: of each token of the passage that is not replaced. agreed: of those where the longest
    match goes on with the same token. disputed: of those where it does not, or there is none.
    replaced: of a token that stands for others of the passage, as it did before.
    past: of each token after the longest match in past texts. past_disputed: of those where the
    best copy of the current text is another token.
    drawn, sure: as in DrawnRates. past_drawn, past_sure: of those in past texts.
    """

    match: MatchTable = field(default_factory=MatchTable)
    match_disputed: MatchTable = field(default_factory=lambda: _table(_MATCH_DISPUTED))
    once: MatchTable = field(default_factory=lambda: _table(_ONCE))
    agreed_before: MatchTable = field(default_factory=lambda: _table(_AGREED_BEFORE))
    differed_before: MatchTable = field(default_factory=lambda: _table(_DIFFERED_BEFORE))
    passage: MatchTable = field(default_factory=lambda: _table(_DISPUTED))
    agreed: MatchTable = field(default_factory=lambda: _table(_AGREED))
    disputed: MatchTable = field(default_factory=lambda: _table(_DISPUTED))
    replaced: MatchTable = field(default_factory=lambda: _table(_REPLACED))
    past: MatchTable = field(default_factory=lambda: _table(_PAST))
    past_disputed: MatchTable = field(default_factory=lambda: _table(_PAST))
    drawn: Sequence[MatchTable] = field(default_factory=lambda: _tables(_DRAWN))
    sure: MatchTable = field(default_factory=lambda: _table(_SURE))
    past_drawn: Sequence[MatchTable] = field(default_factory=lambda: _tables(_PAST_DRAWN))
    past_sure: MatchTable = field(default_factory=lambda: _table(_PAST_SURE))

    @property
    def of_drawn(self) -> DrawnRates:
        """Those of copies of the current text that are drawn anew."""
        return DrawnRates(self.match, self.sure, self.drawn)

    @property
    def of_past_drawn(self) -> DrawnRates:
        """Those of copies of past texts that are drawn anew."""
        return DrawnRates(self.past, self.past_sure, self.past_drawn)

    def after(self, agreed: bool | None) -> MatchTable:
        """The table of matches by `Match.agreed`."""
        if agreed is None:
            return self.once
        return self.agreed_before if agreed else self.differed_before


def predicted_rates() -> CopyRates:
    """The chances of copies of a prediction, before anything of it is right or wrong.

    Its beginning is `disputed`, as nothing has matched: the chance is that of a long passage.
    """
    return CopyRates(passage=_table(_AGREED), disputed=_table((*_DISPUTED[:-1], _AGREED[-1])))
