"""Geometric mean: of measurements on several prompts, with an interval.

Units are prompts, each with the median of its rounds, or the rounds where there is one prompt. The
interval is Student's for the mean of the logarithms of the units. So it covers other prompts of
this kind and other runs; rounds of a prompt do not count as prompts.
"""

import math
from collections.abc import Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray

from localspec.forecast.confidence import LEVEL, MOST_EXPONENT, ConfidenceInterval, t_quantile

_Groups = Sequence[Sequence[float]]
_Floats = NDArray[np.float64]


def mean_of(groups: _Groups) -> ConfidenceInterval:
    """The geometric mean of the units; a single one has no interval.

    groups: the measurements of each prompt, one per round; at least one in all.
    """
    return _interval(_units(groups))


def mean_or_none(groups: _Groups) -> ConfidenceInterval | None:
    """The same; None without any measurement."""
    return mean_of(groups) if any(groups) else None


def ratio_of_means(above: _Groups, below: _Groups) -> ConfidenceInterval:
    """The ratio of two geometric means.

    above, below: the measurements of each prompt, of the same prompts, at least one of each. The
    rounds of the two are independent.
    """
    over, under = _units(above), _units(below)
    return _interval(over / under) if len(above) > 1 else _interval(over, under)


def _units(groups: _Groups) -> _Floats:
    groups = [group for group in groups if group]
    return np.array(groups[0] if len(groups) == 1 else [median(group) for group in groups])


def _interval(*sides: _Floats) -> ConfidenceInterval:
    """The mean of the first side over that of the second, if any; units vary alike on both."""
    if any((side <= 0).any() for side in sides):
        return ConfidenceInterval(0.0)
    # Relative to the first unit, so that equal units are their own mean to the last digit.
    logs = [np.log(side / side[0]) for side in sides]
    means = [side[0] * math.exp(own.mean()) for side, own in zip(sides, logs, strict=True)]
    value = float(means[0] / math.prod(means[1:]))
    freedom = sum(own.size - 1 for own in logs)
    if not freedom:
        return ConfidenceInterval(value)
    variance = sum(((own - own.mean()) ** 2).sum() for own in logs) / freedom
    error = math.sqrt(variance * sum(1 / own.size for own in logs))
    factor = math.exp(min(t_quantile((1 + LEVEL) / 2, freedom) * error, MOST_EXPONENT))
    return ConfidenceInterval(value, value / factor, value * factor)
