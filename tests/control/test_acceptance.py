"""Acceptance rates, learnt by position and by confidence."""

import random

import pytest

from localspec.control.acceptance import AcceptanceRates, ConfidenceTable, correctness


def test_the_first_guess_of_every_position() -> None:
    assert AcceptanceRates().chances(3) == [0.7, 0.7, 0.7]


def test_each_position_has_its_own_rate() -> None:
    rng, rates = random.Random(0), AcceptanceRates()
    for _ in range(400):
        rates.learn(0, rng.random() < 0.9)
        rates.learn(1, rng.random() < 0.3)
    first, second, third = rates.chances(3)
    assert first > 0.75 and second < 0.5
    assert third == pytest.approx(rates.pooled)


def test_old_observations_count_little() -> None:
    rates = AcceptanceRates()
    for right in [False] * 300 + [True] * 60:
        rates.learn(0, right)
    assert rates.chances(1)[0] > 0.85


def test_bad_luck_at_a_depth_that_is_no_longer_reached_fades() -> None:
    rates = AcceptanceRates()
    for _ in range(5):
        rates.learn(0, True)
        rates.learn(1, False)
    low = rates.chances(2)[1]
    for _ in range(300):
        rates.learn(0, True)
    assert rates.chances(2)[1] > 0.9 > low + 0.3


def test_confidence_counts_from_the_start_and_is_corrected() -> None:
    calibration = ConfidenceTable()
    assert calibration.chance(5.0, 0.75) > 0.9
    assert calibration.chance(0.2, 0.75) < 0.6
    for _ in range(60):
        calibration.learn(5.0, False)
        calibration.learn(0.2, True)
    assert calibration.chance(5.0, 0.75) < 0.1
    assert calibration.chance(0.2, 0.75) > 0.9


def test_the_confidence_of_a_drafter_that_is_never_right_counts_little() -> None:
    assert ConfidenceTable().chance(5.0, 0.02) < 0.4


@pytest.mark.parametrize(
    ("drafted", "committed", "known"),
    [
        ([1, 2, 3], [1, 2, 3, 4], [True, True, True]),
        ([1, 2, 3], [1, 9], [True, False]),
        ([1, 2, 3], [1, 2], [True, True]),  # two verified; the third is unknown
        ([1, 2, 3], [9], [False]),
        ([], [1], []),
    ],
)
def test_correctness_of_a_draft(
    drafted: list[int], committed: list[int], known: list[bool]
) -> None:
    assert correctness(drafted, committed) == known
