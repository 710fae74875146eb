"""Median: the median of measurements on several prompts, with an interval.

Units are prompts, or the rounds where there is one prompt. From _ENOUGH units on, the interval is a
bootstrap in two stages: prompts are drawn with replacement, then rounds of each prompt, 2000 times;
the interval holds the middle 95 % of the medians. With fewer units that covers too little: there,
the interval is Student's for the mean of the logarithms of the units, of each prompt's median or of
the rounds. So it covers other prompts of this kind and other runs; rounds of a prompt do not count
as prompts.
"""

import math
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray

from localspec.forecast.confidence import LEVEL, MOST_EXPONENT, ConfidenceInterval, t_quantile

_RESAMPLES, _ENOUGH = 2000, 10

_Groups = Sequence[Sequence[float]]
_Floats = NDArray[np.float64]


def median_of(groups: _Groups) -> ConfidenceInterval:
    """The median of all measurements; a single one has no interval.

    groups: the measurements of each prompt, one per round; at least one in all.
    """
    groups = [group for group in groups if group]
    middle = median(value for group in groups for value in group)
    return _estimate(middle, lambda values: np.median(values, axis=(1, 2)), groups)


def median_or_none(groups: _Groups) -> ConfidenceInterval | None:
    """The same; None without any measurement."""
    return median_of(groups) if any(groups) else None


def ratio_of_medians(above: _Groups, below: _Groups) -> ConfidenceInterval:
    """The median over prompts of the ratio of two medians over rounds.

    above, below: the measurements of each prompt, of the same prompts, at least one of each. The
    rounds of the two are independent.
    """
    middle = median(median(over) / median(under) for over, under in zip(above, below, strict=True))
    return _estimate(
        middle,
        lambda over, under: np.median(np.median(over, axis=2) / np.median(under, axis=2), axis=1),
        above,
        below,
    )


def _estimate(
    middle: float, statistic: Callable[..., _Floats], *sides: _Groups
) -> ConfidenceInterval:
    """An estimate with its interval. statistic: of sides, each (resamples, prompts, rounds)."""
    prompts = len(sides[0])
    if (prompts if prompts > 1 else min(len(side[0]) for side in sides)) < _ENOUGH:
        return _of_few(middle, *sides)
    rng = np.random.default_rng(0)  # the same values give the same interval
    drawn = rng.integers(prompts, size=(_RESAMPLES, prompts))
    medians = statistic(*(_resampled(side, drawn, rng) for side in sides))
    low, high = np.quantile(medians, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return ConfidenceInterval(middle, float(low), float(high))


def _of_few(middle: float, *sides: _Groups) -> ConfidenceInterval:
    """Student's interval; rounds vary alike on both sides."""
    if any(value <= 0 for side in sides for group in side for value in group):
        return ConfidenceInterval(middle)
    if len(sides[0]) > 1:
        of_prompts = [np.log([median(group) for group in side]) for side in sides]
        logs = [of_prompts[0] - sum(of_prompts[1:])]
    else:
        logs = [np.log(side[0]) for side in sides]
    freedom = sum(each.size - 1 for each in logs)
    if not freedom:
        return ConfidenceInterval(middle)
    if not any(map(np.ptp, logs)):
        return ConfidenceInterval(middle, middle, middle)
    center = logs[0].mean() - sum(each.mean() for each in logs[1:])
    variance = sum(((each - each.mean()) ** 2).sum() for each in logs) / freedom
    error = math.sqrt(variance * sum(1 / each.size for each in logs))
    half = t_quantile((1 + LEVEL) / 2, freedom) * error
    low, high = math.exp(center - half), math.exp(min(center + half, MOST_EXPONENT))
    # Where the units are skewed, their median may be outside.
    return ConfidenceInterval(middle, min(low, middle), max(high, middle))


def _resampled(groups: _Groups, drawn: NDArray[np.int64], rng: np.random.Generator) -> _Floats:
    """(resamples, prompts, rounds): for each drawn prompt, rounds drawn from its own."""
    counts = np.array([len(group) for group in groups])
    most = int(counts.max())
    values = np.array([[*group, *[0.0] * (most - len(group))] for group in groups])
    rounds = rng.random((*drawn.shape, most)) * counts[drawn][:, :, None]
    return np.asarray(values[drawn[:, :, None], rounds.astype(int)])
