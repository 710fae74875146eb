"""Acceptance: how often a drafter's tokens are accepted, learnt from every committed token."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import mul

# With each new observation of a position, its older observations count this much less.
_FORGETTING = 0.96
# With each new draft, the observations of all positions count this much less. So a position that
# drafts no longer reach is forgotten, and bad luck there does not keep drafts short for ever.
_FADING = 0.99
# The pooled rate counts as this many observations of each position. The first guess counts as
# _GUESS_WEIGHT observations of the pooled rate.
_POOLED_WEIGHT = 4.0
FIRST_GUESS = 0.7
_GUESS_WEIGHT = 4.0

# Of earlier runs, so many observations of each position and of each bin of confidence count at
# most: a few tokens prove them wrong.
_EARLIER_BY_POSITION, _EARLIER_BY_BIN = 8.0, 16.0

# The borders of the bins of confidence: see `confidence.margin`.
_MARGINS = (-2.0, 0.1, 0.3, 0.6, 1.0, 1.5, 2.2, 3.0, 4.5)
BINS = len(_MARGINS) + 1
# The typical acceptance rate of each bin, for a drafter whose rate over all tokens is
# _TYPICAL_POOLED. It counts as _BIN_WEIGHT observations.
_TYPICAL = (0.55, 0.45, 0.50, 0.55, 0.70, 0.80, 0.88, 0.93, 0.96, 0.98)
_TYPICAL_POOLED = 0.75
# The typical share of tokens in each bin, which counts as _SHARE_WEIGHT tokens.
_TYPICAL_SHARES = (0.01, 0.06, 0.10, 0.10, 0.13, 0.13, 0.13, 0.12, 0.11, 0.11)
_SHARE_WEIGHT, _SHARE_FORGETTING = 5.0, 0.98
_BIN_FORGETTING = 0.995
_BIN_WEIGHT = 3.0
# What a position in the draft adds to the confidence is learnt from its last tokens. So many tokens
# for which it adds nothing are added to them.
_PLACE_FORGETTING = 0.99
_PLACE_WEIGHT = 12.0


@dataclass(slots=True)
class Tally:
    """Drafted tokens in all: how many were right, and how many were tried."""

    right: float = 0.0
    tried: float = 0.0

    def add(self, right: bool) -> None:
        """Count a token."""
        self.right += right
        self.tried += 1

    def fade(self, share: float) -> None:
        """Let this share of what was counted so far remain."""
        self.right *= share
        self.tried *= share

    def few(self, most: float) -> "Tally":
        """In the same proportion, so many tokens at most."""
        tried = min(self.tried, most)
        return Tally(self.share * tried, tried)

    def extend(self, later: "Tally") -> None:
        """Add the counts of other tokens."""
        self.right += later.right
        self.tried += later.tried

    @property
    def share(self) -> float:
        """The share of right tokens; 0 without any."""
        return self.right / self.tried if self.tried else 0.0


@dataclass(slots=True)
class DraftCounts:
    """What the drafts of a drafter came to.

    total: of all tokens. positions: of the first, second, ... token of a draft, where those before
    it were right. margins: by the bins of the drafter's confidence; all 0 if it reports none.
    """

    total: Tally = field(default_factory=Tally)
    positions: list[Tally] = field(default_factory=list)
    margins: list[Tally] = field(default_factory=lambda: [Tally() for _ in range(BINS)])

    def add(self, position: int, right: bool, margin: float | None = None) -> None:
        """Count a token. position: from 0. margin: its confidence, if the drafter reports it."""
        while len(self.positions) <= position:
            self.positions.append(Tally())
        self.total.add(right)
        self.positions[position].add(right)
        if margin is not None:
            self.margins[bisect_right(_MARGINS, margin)].add(right)

    def fade(self, share: float) -> None:
        """Let this share of what was counted so far remain."""
        for each in (self.total, *self.positions, *self.margins):
            each.fade(share)

    def extend(self, later: "DraftCounts") -> None:
        """Add the counts of other drafts."""
        self.positions += [Tally() for _ in later.positions[len(self.positions) :]]
        self.total.extend(later.total)
        for own, other in zip(self.positions, later.positions, strict=False):
            own.extend(other)
        for own, other in zip(self.margins, later.margins, strict=True):
            own.extend(other)

    @property
    def reports_confidence(self) -> bool:
        """Whether the drafter reported its confidence."""
        return any(each.tried for each in self.margins)


@dataclass(frozen=True, slots=True)
class AcceptancePrior:
    """The acceptance rates that are known before drafters draft.

    rates: the acceptance rate by the drafter's name (see `from_end_name`). counts: of earlier runs,
    by the same names. ignored: why a stored prior is ignored; None if none is.
    """

    rates: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, DraftCounts] = field(default_factory=dict)
    ignored: str | None = None


NO_PRIOR = AcceptancePrior()


def from_end_name(drafter: str) -> str:
    """The name by which the drafts of a drafter from the end of the prompt alone are known."""
    return f"{drafter}, from the end"


class AcceptanceRates:
    """The probability that the j-th drafted token is accepted, given that those before it are.

    guess: the probability at every position before the first observation. earlier: the drafts of
    earlier runs, of which few count. seen: the tokens that were drafted lately.
    """

    def __init__(self, guess: float = FIRST_GUESS, earlier: DraftCounts | None = None) -> None:
        self.seen = Tally()
        self._seen_by_others = 0.0
        self._guess = self._expected = guess
        self._guess_weight = _GUESS_WEIGHT
        positions = earlier.positions if earlier else ()
        self._right, self._tried = _few(positions, _EARLIER_BY_POSITION)

    @property
    def pooled(self) -> float:
        """The acceptance rate over all positions."""
        right = self.seen.right + self._guess_weight * self._expected
        return right / (self.seen.tried + self._guess_weight)

    def expect(self, others: Tally) -> None:
        """Improve the first guess by what other texts, which are written now, have seen lately."""
        right = _GUESS_WEIGHT * self._guess + others.right
        self._expected = right / (_GUESS_WEIGHT + others.tried)
        self._seen_by_others = others.tried

    @property
    def observed(self) -> float:
        """How many tokens were seen lately, in this text and in others."""
        return self.seen.tried + self._seen_by_others

    def learn(self, position: int, right: bool) -> None:
        """Learn whether the token at this position (from 0) was right, where all before it were."""
        if position == 0:
            self._right = [_FADING * right for right in self._right]
            self._tried = [_FADING * tried for tried in self._tried]
        while len(self._tried) <= position:
            self._right.append(0.0)
            self._tried.append(0.0)
        self._right[position] = _FORGETTING * self._right[position] + right
        self._tried[position] = _FORGETTING * self._tried[position] + 1
        self.seen.fade(_FORGETTING)
        self.seen.add(right)
        self._guess_weight *= _FORGETTING

    def chances(self, count: int) -> list[float]:
        """Return (count,) the acceptance rates by position."""
        pooled = self.pooled
        known = [
            (right + _POOLED_WEIGHT * pooled) / (tried + _POOLED_WEIGHT)
            for right, tried in zip(self._right[:count], self._tried[:count], strict=True)
        ]
        return known + [pooled] * (count - len(known))


class ConfidenceTable:
    """The probability that a drafted token is accepted, by the drafter's confidence in it.

    Bins with few observations use the typical rate, shifted (in log-odds) by how much this
    drafter's pooled rate differs from the typical one. Positions (from 0) at which more or fewer
    tokens are right than their confidence tells are shifted in the same way.

    earlier: the drafts of earlier runs, of which few count.
    """

    def __init__(self, earlier: DraftCounts | None = None) -> None:
        self._right, self._tried = _few((earlier or DraftCounts()).margins, _EARLIER_BY_BIN)
        self._lately = [_SHARE_WEIGHT * share for share in _TYPICAL_SHARES]
        self._positions: list[_Position] = []

    def learn(self, margin: float, right: bool, position: int = 0) -> None:
        """Learn whether a token drafted with this margin was right."""
        bin_ = bisect_right(_MARGINS, margin)
        while len(self._positions) <= position:
            self._positions.append(_Position())
        self._positions[position].learn(bin_, right)
        self._lately = [_SHARE_FORGETTING * each for each in self._lately]
        self._lately[bin_] += 1
        self._right[bin_] = _BIN_FORGETTING * self._right[bin_] + right
        self._tried[bin_] = _BIN_FORGETTING * self._tried[bin_] + 1

    def chance(self, margin: float, pooled: float, position: int = 0) -> float:
        """The probability for a token with this margin. pooled: the rate over all tokens."""
        return self.chances(pooled, position)[bisect_right(_MARGINS, margin)]

    def outcomes(self, pooled: float) -> list[tuple[float, float]]:
        """By bin: (its share of all tokens lately, the probability of a first token of a draft)."""
        total = sum(self._lately)
        return [
            (lately / total, chance)
            for lately, chance in zip(self._lately, self.chances(pooled), strict=True)
        ]

    def chances(self, pooled: float, position: int = 0) -> list[float]:
        """(BINS,) the probabilities at a position by the bins of confidence."""
        by = _odds(pooled) / _odds(_TYPICAL_POOLED)
        chances = [
            (right + _BIN_WEIGHT * _shifted(typical, by)) / (tried + _BIN_WEIGHT)
            for right, tried, typical in zip(self._right, self._tried, _TYPICAL, strict=True)
        ]
        if position < len(self._positions):
            shift = self._positions[position].shift(chances)
            chances = [_shifted(each, shift) for each in chances]
        return chances


class _Position:
    """What was drafted lately at one position of the drafts."""

    def __init__(self) -> None:
        self._right, self._tried = 0.0, [0.0] * BINS

    def learn(self, bin_: int, right: bool) -> None:
        """Learn whether a token of a bin of confidence was right."""
        self._right = _PLACE_FORGETTING * self._right + right
        self._tried = [_PLACE_FORGETTING * each for each in self._tried]
        self._tried[bin_] += 1

    def shift(self, chances: Sequence[float]) -> float:
        """By what the odds of a token's confidence are multiplied here.

        chances: (BINS,) the probabilities by confidence alone.
        """
        if not (tried := sum(self._tried)):
            return 1.0
        mean = sum(map(mul, self._tried, chances)) / tried
        right = (self._right + _PLACE_WEIGHT * mean) / (tried + _PLACE_WEIGHT)
        return _odds(right) / _odds(mean)


def _few(earlier: Sequence[Tally], most: float) -> tuple[list[float], list[float]]:
    """Return right and tried tokens in the proportion of earlier ones, of which `most` count."""
    few = [each.few(most) for each in earlier]
    return [each.right for each in few], [each.tried for each in few]


def _shifted(chance: float, by: float) -> float:
    """The probability whose odds are so many times those of this one."""
    odds = _odds(chance) * by
    return odds / (1 + odds)


def _odds(chance: float) -> float:
    bounded = min(max(chance, 1e-6), 1 - 1e-6)
    return bounded / (1 - bounded)


def correctness(drafted: Sequence[int], committed: Sequence[int]) -> list[bool]:
    """Whether each drafted token is right, up to the first wrong one or the last committed one."""
    known: list[bool] = []
    for token, committed_token in zip(drafted, committed, strict=False):
        known.append(token == committed_token)
        if token != committed_token:
            break
    return known
