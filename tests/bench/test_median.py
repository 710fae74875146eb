"""The interval of a median: how often it covers, with few values too, and what it cannot tell."""

from collections.abc import Callable

import numpy as np
import pytest

from localspec.bench import median
from localspec.bench.median import median_of, ratio_of_medians
from localspec.forecast.confidence import ConfidenceInterval

Floats = list[list[float]]
# Enough to tell 95 % from the 50 to 88 % that resampling few values covers.
_TRIALS = 300


def test_a_median_lies_in_its_interval() -> None:
    many = median_of([[1.0, 1.1], [2.0, 2.2], [3.0], [2.5, 2.4]])
    assert many.value == 2.2
    assert many.low is not None and many.high is not None
    assert many.low < many.value < many.high
    assert many == median_of([[1.0, 1.1], [2.0, 2.2], [3.0], [2.5, 2.4]])
    skewed = median_of([[1.0]] * 5 + [[3.0]] * 4)
    assert skewed.low is not None and skewed.low <= skewed.value == 1.0


def test_an_interval_of_one_figure_and_of_one_prompt() -> None:
    assert median_of([[2.0]]) == ConfidenceInterval(2.0)
    assert ratio_of_medians([[2.0]], [[1.0]]) == ConfidenceInterval(2.0)
    rounds = median_of([[1.0, 2.0, 4.0]])
    # The mean of the logarithms of 1, 2, 4 is that of 2, their deviation that of 2: t is 4.303.
    assert rounds.value == 2.0
    assert (rounds.low, rounds.high) == pytest.approx((0.357, 11.19), rel=0.002)
    assert median_of([[2.0], [2.0]]) == ConfidenceInterval(2.0, 2.0, 2.0)


def test_a_figure_of_zero_has_no_interval() -> None:
    assert median_of([[0.0, 1.0]]) == ConfidenceInterval(0.5)


def covered(truth: float, estimate: Callable[[np.random.Generator], ConfidenceInterval]) -> float:
    """How often the intervals of an estimate cover."""
    rng, found = np.random.default_rng(1), 0
    for _ in range(_TRIALS):
        interval = estimate(rng)
        assert interval.low is not None and interval.high is not None
        found += interval.low <= truth <= interval.high
    return found / _TRIALS


def noisy(prompts: np.ndarray, rounds: int, rng: np.random.Generator) -> Floats:
    """Rounds of each prompt, which vary by 5 %."""
    return [list(each * np.exp(rng.normal(0, 0.05, rounds))) for each in prompts]


_SHAPES = [(1, 2), (1, 3), (2, 1), (2, 2), (4, 1), (5, 1), (7, 1), (9, 1), (20, 1)]


@pytest.mark.parametrize(("prompts", "rounds"), _SHAPES)
def test_an_interval_covers_the_median_about_as_often_as_it_says(
    prompts: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(median, "_RESAMPLES", 400)
    spread = 0.2 if prompts > 1 else 0.0
    assert (
        covered(
            1.0, lambda rng: median_of(noisy(np.exp(rng.normal(0, spread, prompts)), rounds, rng))
        )
        > 0.91
    )


@pytest.mark.parametrize(("prompts", "rounds"), _SHAPES)
def test_equal_speeds_are_seldom_called_faster_or_slower(
    prompts: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(median, "_RESAMPLES", 400)

    def same_speed(rng: np.random.Generator) -> ConfidenceInterval:
        speeds = np.exp(rng.normal(0, 0.3, prompts))
        return ratio_of_medians(noisy(speeds, rounds, rng), noisy(speeds, rounds, rng))

    assert covered(1.0, same_speed) > 0.91
