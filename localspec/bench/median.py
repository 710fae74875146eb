"""Median: of figures that belong together in groups, with an interval."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

_RESAMPLES = 2000
_COVERED = 0.95


@dataclass(frozen=True, slots=True)
class Median:
    """A median and where it may lie; low and high are None where one figure tells nothing of it."""

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, groups: Sequence[Sequence[float]]) -> "Median":
        """Of all figures. groups: those of each prompt, one per round; at least one figure.

        The interval is a bootstrap in two stages: prompts are drawn with replacement, then each
        one's rounds, 2000 times, and the middle 95 % of the medians taken. So it covers other
        prompts of the kind and other runs of them; rounds of one prompt do not count as prompts.
        """
        groups = [group for group in groups if group]
        middle = median(figure for group in groups for figure in group)
        if sum(map(len, groups)) < 2:
            return cls(middle)
        counts = np.array([len(group) for group in groups])
        most = int(counts.max())
        figures = np.array([[*group, *[0.0] * (most - len(group))] for group in groups])
        rng = np.random.default_rng(0)  # the same figures give the same interval
        drawn = rng.integers(len(groups), size=(_RESAMPLES, len(groups)))
        rounds = rng.random((_RESAMPLES, len(groups), most)) * counts[drawn][:, :, None]
        medians = np.median(figures[drawn[:, :, None], rounds.astype(int)], axis=(1, 2))
        low, high = np.quantile(medians, [(1 - _COVERED) / 2, (1 + _COVERED) / 2])
        return cls(middle, float(low), float(high))
