"""Draws: each primitive has the law it says, a seed decides all, and nothing impossible comes."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from localspec.sampling.distribution import Distribution
from localspec.sampling.draws import Draws

MANY = 40_000


def deviation(count: int, p: float) -> float:
    """How many standard deviations a count is off."""
    return abs(count - MANY * p) / math.sqrt(MANY * p * (1 - p))


@pytest.mark.parametrize("p", [0.01, 0.3, 0.5, 0.97])
def test_bern(p: float) -> None:
    draws = Draws(1)
    assert deviation(sum(draws.bern(p) for _ in range(MANY)), p) < 5


def test_bern_is_certain_at_the_ends() -> None:
    draws = Draws(2)
    assert not any(draws.bern(0.0) for _ in range(MANY))
    assert all(draws.bern(1.0) for _ in range(MANY))


@pytest.mark.parametrize("weights", [[0.1, 0.2, 0.7], [0, 3, 0, 1, 0], [5e-9, 1e-8], [2.0]])
def test_cat(weights: list[float]) -> None:
    draws, array = Draws(3), np.array(weights)
    counts = Counter(draws.cat(array) for _ in range(MANY))
    for index, weight in enumerate(array / array.sum()):
        if weight == 0:
            assert index not in counts
        elif weight < 1:
            assert deviation(counts[index], float(weight)) < 5


@pytest.mark.parametrize("drawn", [0.0, math.nextafter(1, 0)])
def test_what_is_impossible_is_not_drawn_at_the_ends_of_the_range(drawn: float) -> None:
    class Generator:
        def random(self) -> float:
            return drawn

    draws = Draws(1)
    draws._generator = Generator()  # type: ignore[assignment]
    assert (draws.bern(0.0), draws.bern(1.0)) == (False, True)
    for total in (1.0, 0.3, 1e9):
        assert draws.cat(np.array([0, 0, total, 0])) == 2


def test_successive_draws_are_independent() -> None:
    draws = Draws(4)
    coins = [draws.bern(0.5) for _ in range(MANY + 1)]
    same = sum(first == second for first, second in itertools.pairwise(coins))
    assert deviation(same, 0.5) < 5


def test_a_seed_decides_and_a_position_does_not() -> None:
    law = Distribution(np.log(np.float32([0.2, 0.3, 0.5])), np.array([7, 8, 9]))
    first, second, other = Draws(5), Draws(5), Draws(6)
    texts = [[draws.sample(law, at) for at in (0, 0, 0, 5) * 20] for draws in (first, second)]
    assert texts[0] == texts[1]
    assert set(texts[0]) == {7, 8, 9}
    assert [other.sample(law, 0) for _ in range(80)] != texts[0]
