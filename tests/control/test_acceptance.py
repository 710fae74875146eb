"""How often drafts are right, as learnt: by position, by confidence."""

import random

import pytest

from localspec.control.acceptance import AcceptanceRates, ConfidenceTable, correctness


def test_before_anything_is_known_drafts_are_worth_a_try() -> None:
    assert AcceptanceRates().chances(3) == [0.7, 0.7, 0.7]


def test_positions_are_told_apart() -> None:
    rng, hazards = random.Random(0), AcceptanceRates()
    for _ in range(400):
        hazards.learn(0, rng.random() < 0.9)
        hazards.learn(1, rng.random() < 0.3)
    first, second, third = hazards.chances(3)
    assert first > 0.75 and second < 0.5
    assert third == pytest.approx(hazards.pooled)


def test_what_was_long_ago_counts_little() -> None:
    hazards = AcceptanceRates()
    for right in [False] * 300 + [True] * 60:
        hazards.learn(0, right)
    assert hazards.chances(1)[0] > 0.85


def test_bad_luck_at_a_depth_that_is_no_longer_reached_fades() -> None:
    hazards = AcceptanceRates()
    for _ in range(5):
        hazards.learn(0, True)
        hazards.learn(1, False)
    low = hazards.chances(2)[1]
    for _ in range(300):
        hazards.learn(0, True)
    assert hazards.chances(2)[1] > 0.9 > low + 0.3


def test_confidence_counts_from_the_start_and_is_corrected() -> None:
    calibration = ConfidenceTable()
    assert calibration.chance(5.0, 0.75) > 0.9
    assert calibration.chance(0.2, 0.75) < 0.6
    for _ in range(60):
        calibration.learn(5.0, False)
        calibration.learn(0.2, True)
    assert calibration.chance(5.0, 0.75) < 0.1
    assert calibration.chance(0.2, 0.75) > 0.9


def test_a_drafter_of_noise_is_not_believed_however_sure() -> None:
    assert ConfidenceTable().chance(5.0, 0.02) < 0.4


@pytest.mark.parametrize(
    ("drafted", "committed", "known"),
    [
        ([1, 2, 3], [1, 2, 3, 4], [True, True, True]),
        ([1, 2, 3], [1, 9], [True, False]),
        ([1, 2, 3], [1, 2], [True, True]),  # two verified; of the third nothing is known
        ([1, 2, 3], [9], [False]),
        ([], [1], []),
    ],
)
def test_what_is_known_of_a_draft(
    drafted: list[int], committed: list[int], known: list[bool]
) -> None:
    assert correctness(drafted, committed) == known
