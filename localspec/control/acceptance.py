"""Acceptance: how often a drafter's tokens are right, learnt from every emitted token."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# Older observations of a position count this much less with every new one.
_FORGETTING = 0.96
# And with every new draft: what was seen of positions that are no longer reached fades, so that
# bad luck there does not keep drafts short for ever.
_FADING = 0.99
# How many observations the pooled rate weighs at a position, and a guess in the pooled rate.
_POOLED_WEIGHT = 4.0
FIRST_GUESS = 0.7
_GUESS_WEIGHT = 4.0

# Bins of confidence: below the first margin, between two, above the last. See `confidence.margin`.
_MARGINS = (-2.0, 0.1, 0.3, 0.6, 1.0, 1.5, 2.2, 3.0, 4.5)
# How often tokens of each bin are right where three in four are, roughly, and what that weighs.
_TYPICAL = (0.55, 0.45, 0.50, 0.55, 0.70, 0.80, 0.88, 0.93, 0.96, 0.98)
_TYPICAL_POOLED = 0.75
_BIN_FORGETTING = 0.995
_BIN_WEIGHT = 3.0


@dataclass(frozen=True, slots=True)
class AcceptancePrior:
    """What is known of drafters before they draft.

    rates: the share of each one's tokens that are right, by name. ignored: why a stored prior does
    not count, if there is one.
    """

    rates: Mapping[str, float] = field(default_factory=dict)
    ignored: str | None = None


class AcceptanceRates:
    """The chance that the j-th drafted token is right, given that those before it were.

    guess: of any of them, before anything is seen.
    """

    def __init__(self, guess: float = FIRST_GUESS) -> None:
        self._right: list[float] = []
        self._tried: list[float] = []
        self._pooled_right = guess * _GUESS_WEIGHT
        self._pooled_tried = _GUESS_WEIGHT

    @property
    def pooled(self) -> float:
        """Over all positions."""
        return self._pooled_right / self._pooled_tried

    def learn(self, position: int, right: bool) -> None:
        """The token drafted at this position (from 0), behind right ones, was right or not."""
        if position == 0:
            self._right = [_FADING * right for right in self._right]
            self._tried = [_FADING * tried for tried in self._tried]
        while len(self._tried) <= position:
            self._right.append(0.0)
            self._tried.append(0.0)
        self._right[position] = _FORGETTING * self._right[position] + right
        self._tried[position] = _FORGETTING * self._tried[position] + 1
        self._pooled_right = _FORGETTING * self._pooled_right + right
        self._pooled_tried = _FORGETTING * self._pooled_tried + 1

    def chances(self, count: int) -> list[float]:
        """(count,) by position."""
        pooled = self.pooled
        known = [
            (right + _POOLED_WEIGHT * pooled) / (tried + _POOLED_WEIGHT)
            for right, tried in zip(self._right[:count], self._tried[:count], strict=True)
        ]
        return known + [pooled] * (count - len(known))


class ConfidenceTable:
    """The chance that a drafted token is right, by the drafter's confidence in it.

    Bins with little data lean on what is typical, made as much better or worse as this drafter is
    on the whole.
    """

    def __init__(self) -> None:
        self._right = [0.0] * (len(_MARGINS) + 1)
        self._tried = [0.0] * (len(_MARGINS) + 1)

    def learn(self, margin: float, right: bool) -> None:
        """A token drafted with this margin was right or not."""
        bin_ = bisect_right(_MARGINS, margin)
        self._right[bin_] = _BIN_FORGETTING * self._right[bin_] + right
        self._tried[bin_] = _BIN_FORGETTING * self._tried[bin_] + 1

    def chance(self, margin: float, pooled: float) -> float:
        """Of a token drafted with this margin. pooled: of any."""
        bin_ = bisect_right(_MARGINS, margin)
        odds = _odds(_TYPICAL[bin_]) * _odds(pooled) / _odds(_TYPICAL_POOLED)
        expected = odds / (1 + odds)
        return (self._right[bin_] + _BIN_WEIGHT * expected) / (self._tried[bin_] + _BIN_WEIGHT)


def _odds(chance: float) -> float:
    bounded = min(max(chance, 1e-6), 1 - 1e-6)
    return bounded / (1 - bounded)


def right_ones(drafted: Sequence[int], committed: Sequence[int]) -> list[bool]:
    """Which drafted tokens are known to be right or wrong, up to the first wrong one."""
    known: list[bool] = []
    for mine, true in zip(drafted, committed, strict=False):
        known.append(mine == true)
        if mine != true:
            break
    return known
