"""Median: the median of measurements on several prompts, with an interval."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

_RESAMPLES = 2000
_COVERED = 0.95


@dataclass(frozen=True, slots=True)
class Median:
    """A median and its 95 % interval; low and high are None for a single measurement."""

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, groups: Sequence[Sequence[float]]) -> "Median":
        """The median of all measurements.

        groups: the measurements of each prompt, one per round; at least one in all.

        The interval is a bootstrap in two stages: prompts are drawn with replacement, then rounds
        of each prompt, 2000 times; the interval holds the middle 95 % of the medians. So it covers
        other prompts of this kind and other runs; rounds of a prompt do not count as prompts.
        """
        groups = [group for group in groups if group]
        middle = median(value for group in groups for value in group)
        if sum(map(len, groups)) < 2:
            return cls(middle)
        counts = np.array([len(group) for group in groups])
        most = int(counts.max())
        values = np.array([[*group, *[0.0] * (most - len(group))] for group in groups])
        rng = np.random.default_rng(0)  # the same values give the same interval
        drawn = rng.integers(len(groups), size=(_RESAMPLES, len(groups)))
        rounds = rng.random((_RESAMPLES, len(groups), most)) * counts[drawn][:, :, None]
        medians = np.median(values[drawn[:, :, None], rounds.astype(int)], axis=(1, 2))
        low, high = np.quantile(medians, [(1 - _COVERED) / 2, (1 + _COVERED) / 2])
        return cls(middle, float(low), float(high))
