"""Confidence: a ratio estimated from several prompts, and the interval around it."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95
MOST_EXPONENT = 700.0  # of a float
# Ends that are further apart than this factor tell nothing of a speed.
_WIDE = 4.0


@dataclass(frozen=True, slots=True)
class ConfidenceInterval:
    """An estimated value, and the ends of its 95 % interval; None where too few values tell."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def is_wide(self) -> bool:
        """Whether the interval tells nothing, as too few texts were written."""
        return self.low is None or self.high is None or self.high > _WIDE * self.low

    def is_above(self, value: float) -> bool:
        """Whether all of the interval is."""
        return self.low is not None and self.low > value

    def __str__(self) -> str:
        return "too few texts" if self.is_wide else f"{self.low:.2f} to {self.high:.2f}"


def ratio_interval(
    above: Sequence[float], below: Sequence[float], prompts: Sequence[Hashable] | None = None
) -> ConfidenceInterval:
    """Estimate sum(above) / sum(below), with its t interval, from one pair per prompt.

    prompts: what each pair belongs to; texts of one prompt are alike, so these are added up first.

    The residuals e = above - ratio * below give the standard error, sqrt(n / (n - 1) sum e^2) over
    sum(below): the usual ratio estimator, whose t interval covers well from ten prompts on. It is
    symmetric for the logarithm of the ratio, so that no end is below 0.

    NaN if `below` is all 0. A single prompt has no interval.
    """
    numbers = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompts or ()))}
    own = [numbers[each] for each in prompts] if prompts else range(len(above))
    a, b = np.bincount(own, above), np.bincount(own, below)
    n, total = a.size, float(b.sum())
    if not total:
        return ConfidenceInterval(math.nan, math.nan, math.nan)
    value = float(a.sum()) / total
    if n < 2:
        return ConfidenceInterval(value)
    error = math.sqrt(n / (n - 1) * float(((a - value * b) ** 2).sum())) / total
    half = t_quantile((1 + LEVEL) / 2, n - 1) * error
    if value <= 0:
        return ConfidenceInterval(value, value - half, value + half)
    factor = math.exp(min(half / value, MOST_EXPONENT))
    return ConfidenceInterval(value, value / factor, value * factor)


def t_quantile(probability: float, df: int) -> float:
    """The quantile, probability > 1/2, of Student's t with `df` degrees of freedom."""
    low, high = 0.0, 1.0
    while _t_within(high, df) < 2 * probability - 1:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        below = _t_within(middle, df) < 2 * probability - 1
        low, high = (middle, high) if below else (low, middle)
    return high


def _t_within(t: float, df: int) -> float:
    """Pr[-t < T < t], by the finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan2(t, math.sqrt(df))
    cosine = math.cos(angle)
    odd = df % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for k in range(1 + odd, df, 2):
        total += term
        term *= cosine * cosine * k / (k + 1)
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total
