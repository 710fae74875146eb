"""The interval of a geometric mean: how often it covers, and what it cannot tell."""

from collections.abc import Callable

import numpy as np
import pytest

from localspec.bench.geometric_mean import mean_of, ratio_of_means
from localspec.forecast.confidence import ConfidenceInterval

Floats = list[list[float]]
Noise = Callable[[np.random.Generator, int], np.ndarray]
# Enough to tell 95 % from the 90 to 93 % of medians that are drawn anew from ten or twenty prompts.
_TRIALS = 1500


def test_a_mean_is_that_of_the_prompts_and_in_the_middle_of_its_interval() -> None:
    groups = [[1.0, 1.1, 9.0], [2.0, 2.2, 0.1], [3.0], [2.5, 2.5]]
    many = mean_of(groups)
    assert many.value == pytest.approx((1.1 * 2.0 * 3.0 * 2.5) ** (1 / 4))
    assert many.low is not None and many.high is not None
    assert many.low < many.value < many.high
    assert many.low * many.high == pytest.approx(many.value**2)


def test_an_interval_of_one_figure_and_of_one_prompt() -> None:
    assert mean_of([[2.0]]) == ConfidenceInterval(2.0)
    assert ratio_of_means([[2.0]], [[1.0]]) == ConfidenceInterval(2.0)
    rounds = mean_of([[1.0, 2.0, 4.0]])
    # The mean of the logarithms of 1, 2, 4 is that of 2, their deviation that of 2: t is 4.303.
    assert rounds.value == pytest.approx(2.0)
    assert (rounds.low, rounds.high) == pytest.approx((0.357, 11.19), rel=0.002)


def test_the_ratio_of_one_prompt_has_the_rounds_of_both_sides() -> None:
    ratio = ratio_of_means([[2.0, 4.0]], [[1.0, 1.0]])
    # Variances of log(2)^2 / 2 and 0, four rounds with 2 degrees of freedom: t is 4.303.
    assert ratio.value == pytest.approx(8**0.5)
    assert ratio.high == pytest.approx(8**0.5 * np.exp(4.303 * np.log(2) / 2), rel=0.001)


@pytest.mark.parametrize("prompts", [2, 3, 12])
def test_equal_figures_leave_no_doubt(prompts: int) -> None:
    assert mean_of([[0.7]] * prompts) == ConfidenceInterval(0.7, 0.7, 0.7)


def test_the_figures_of_both_sides_have_the_ratio() -> None:
    above, below = [[3.0, 4.0, 9.0], [8.0, 7.0]], [[2.0, 2.5], [5.0]]
    ratio = ratio_of_means(above, below)
    assert ratio.value == pytest.approx(mean_of(above).value / mean_of(below).value)


def test_a_figure_of_zero_has_no_interval() -> None:
    assert mean_of([[0.0, 1.0]]) == ConfidenceInterval(0.0)


def covered(truth: float, estimate: Callable[[np.random.Generator], ConfidenceInterval]) -> float:
    """How often the intervals of an estimate cover."""
    rng, found = np.random.default_rng(1), 0
    for _ in range(_TRIALS):
        interval = estimate(rng)
        assert interval.low is not None and interval.high is not None
        found += interval.low <= truth <= interval.high
    return found / _TRIALS


def normal(rng: np.random.Generator, rounds: int) -> np.ndarray:
    """Runs that vary by 5 %."""
    return rng.normal(0, 0.05, rounds)


def busy(rng: np.random.Generator, rounds: int) -> np.ndarray:
    """The same, but one in ten is slowed down by other programs."""
    slowed = rng.random(rounds) < 0.1
    return normal(rng, rounds) - slowed * np.log(rng.uniform(1.2, 2.5, rounds))


def noisy(prompts: np.ndarray, rounds: int, rng: np.random.Generator, noise: Noise) -> Floats:
    """Rounds of each prompt."""
    return [list(each * np.exp(noise(rng, rounds))) for each in prompts]


_SHAPES = [(1, 2), (1, 3), (2, 1), (2, 2), (5, 1), (9, 1), (10, 1), (20, 1), (20, 3)]


@pytest.mark.parametrize(("prompts", "rounds"), _SHAPES)
def test_an_interval_covers_the_mean_about_as_often_as_it_says(prompts: int, rounds: int) -> None:
    def mean(rng: np.random.Generator) -> ConfidenceInterval:
        speeds = np.exp(rng.normal(0, 0.2 if prompts > 1 else 0.0, prompts))
        return mean_of(noisy(speeds, rounds, rng, normal))

    assert 0.935 < covered(1.0, mean) < 0.965


@pytest.mark.parametrize("noise", [normal, busy])
@pytest.mark.parametrize(("prompts", "rounds"), _SHAPES)
def test_equal_speeds_are_seldom_called_faster_or_slower(
    prompts: int, rounds: int, noise: Noise
) -> None:
    def same_speed(rng: np.random.Generator) -> ConfidenceInterval:
        speeds = np.exp(rng.normal(0, 0.3, prompts))
        return ratio_of_means(*(noisy(speeds, rounds, rng, noise) for _side in range(2)))

    assert covered(1.0, same_speed) > 0.935
