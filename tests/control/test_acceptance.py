"""Acceptance rates, learnt by position and by confidence."""

import random

import pytest

from localspec.control.acceptance import (
    AcceptanceRates,
    ConfidenceTable,
    DraftCounts,
    correctness,
)


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


def drafts(count: int, *, sure: float = 0.9, unsure: float = 0.2) -> DraftCounts:
    """Drafts of two tokens: the first is sure, the second is not."""
    rng, counts = random.Random(0), DraftCounts()
    for _ in range(count):
        counts.add(0, rng.random() < sure, 5.0)
        counts.add(1, rng.random() < unsure, 0.2)
    return counts


def test_the_rates_of_earlier_runs_count_at_once() -> None:
    earlier = drafts(500)
    first, second, third = AcceptanceRates(earlier.total.share, earlier).chances(3)
    assert first > 0.75 and second < 0.35
    assert third == pytest.approx(earlier.total.share)
    table = ConfidenceTable(earlier)
    assert table.chance(5.0, 0.5) > 0.85 and table.chance(0.2, 0.5) < 0.3
    assert table.chance(1.2, 0.5) == ConfidenceTable().chance(1.2, 0.5)


def test_a_few_tokens_prove_earlier_runs_wrong() -> None:
    earlier = drafts(100_000)
    rates, table = AcceptanceRates(earlier.total.share, earlier), ConfidenceTable(earlier)
    for _ in range(20):
        rates.learn(0, False)
        table.learn(5.0, False)
    assert rates.chances(1)[0] < 0.25
    assert table.chance(5.0, rates.pooled) < 0.5


def test_counts_of_two_runs_add_up_and_fade() -> None:
    counts, later = drafts(10, sure=1, unsure=0), DraftCounts()
    later.add(2, True)
    counts.extend(later)
    assert (counts.total.right, counts.total.tried) == (11, 21)
    assert [each.tried for each in counts.positions] == [10, 10, 1]
    assert sum(each.tried for each in counts.margins) == 20
    assert counts.reports_confidence and not later.reports_confidence
    counts.fade(0.1)
    assert (counts.total.right, counts.total.tried) == pytest.approx((1.1, 2.1))
    assert counts.positions[0].tried == pytest.approx(1) and later.total.tried == 1


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
