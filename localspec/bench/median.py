"""Median: the median of measurements on several prompts, with an interval."""

from collections.abc import Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray

from localspec.forecast.confidence import LEVEL, ConfidenceInterval

_RESAMPLES = 2000


def median_of(groups: Sequence[Sequence[float]]) -> ConfidenceInterval:
    """The median of all measurements.

    groups: the measurements of each prompt, one per round; at least one in all.

    The interval is a bootstrap in two stages: prompts are drawn with replacement, then rounds of
    each prompt, 2000 times; the interval holds the middle 95 % of the medians. So it covers other
    prompts of this kind and other runs; rounds of a prompt do not count as prompts. A single
    measurement has none.
    """
    groups = [group for group in groups if group]
    middle = median(value for group in groups for value in group)
    if sum(map(len, groups)) < 2:
        return ConfidenceInterval(middle)
    rng = np.random.default_rng(0)  # the same values give the same interval
    drawn = rng.integers(len(groups), size=(_RESAMPLES, len(groups)))
    return _within(middle, np.median(_resampled(groups, drawn, rng), axis=(1, 2)))


def ratio_of_medians(
    above: Sequence[Sequence[float]], below: Sequence[Sequence[float]]
) -> ConfidenceInterval:
    """The median over prompts of the ratio of two medians over rounds.

    above, below: the measurements of each prompt, of the same prompts, at least one of each. The
    interval is as in `median_of`; the rounds of the two are drawn independently.
    """
    pairs = list(zip(above, below, strict=True))
    middle = median(median(over) / median(under) for over, under in pairs)
    if len(pairs) == len(above[0]) == len(below[0]) == 1:
        return ConfidenceInterval(middle)
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(pairs), size=(_RESAMPLES, len(pairs)))
    over, under = (np.median(_resampled(groups, drawn, rng), axis=2) for groups in (above, below))
    return _within(middle, np.median(over / under, axis=1))


def _within(middle: float, medians: NDArray[np.float64]) -> ConfidenceInterval:
    low, high = np.quantile(medians, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return ConfidenceInterval(middle, float(low), float(high))


def _resampled(
    groups: Sequence[Sequence[float]], drawn: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """(resamples, prompts, rounds): for each drawn prompt, rounds drawn from its own."""
    counts = np.array([len(group) for group in groups])
    most = int(counts.max())
    values = np.array([[*group, *[0.0] * (most - len(group))] for group in groups])
    rounds = rng.random((*drawn.shape, most)) * counts[drawn][:, :, None]
    return np.asarray(values[drawn[:, :, None], rounds.astype(int)])
