"""Acceptance rates, learnt by position and by confidence."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.control.acceptance import (
    BINS,
    AcceptanceRates,
    ConfidenceTable,
    DraftCounts,
    Tally,
    _Position,
    correctness,
)

# A margin in each bin of confidence.
MARGINS = (-3.0, 0.0, 0.2, 0.5, 0.8, 1.2, 2.0, 2.5, 4.0, 5.0)


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


def share(right: Sequence[bool], ages: Sequence[int], kept: float) -> tuple[float, float]:
    """Right and tried tokens, of which this share remains each time that they age."""
    return sum(kept**age for age, each in zip(ages, right, strict=True) if each), sum(
        kept**age for age in ages
    )


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=4), max_size=30))
def test_the_rates_are_those_of_all_drafts_by_their_age(patterns: list[list[bool]]) -> None:
    """Each draft ends with its first wrong token."""
    rates, all_, positions = AcceptanceRates(), list[bool](), dict[int, list[tuple[int, bool]]]()
    for draft, pattern in enumerate(patterns):
        for position, right in enumerate(pattern):
            rates.learn(position, right)
            all_.append(right)
            positions.setdefault(position, []).append((draft, right))
            if not right:
                break
    right, tried = share(all_, range(len(all_))[::-1], 0.96)
    guess = 4 * 0.96 ** len(all_)
    pooled = (right + 0.7 * guess) / (tried + guess)
    expected = []
    for position in range(5):
        # Older ones fade with each draft, and with each token of the position.
        seen = positions.get(position, [])
        weights = [
            0.96 ** (len(seen) - 1 - number) * 0.99 ** (len(patterns) - 1 - draft)
            for number, (draft, _) in enumerate(seen)
        ]
        rights = sum(weight for weight, (_, each) in zip(weights, seen, strict=True) if each)
        expected.append((rights + 4 * pooled) / (sum(weights) + 4))
    assert rates.pooled == pytest.approx(pooled)
    assert rates.chances(5) == pytest.approx(expected)
    assert rates.observed == pytest.approx(tried)


def test_what_other_texts_have_seen_counts_once_however_often_it_is_told() -> None:
    rates = AcceptanceRates()
    for _ in range(9):
        rates.expect(Tally(2, 16))
    assert rates.pooled == pytest.approx((4 * 0.7 + 2) / 20)
    assert rates.observed == 16
    rates.learn(0, True)
    assert rates.observed == 17
    rates.expect(Tally())
    assert rates.pooled == pytest.approx((1 + 4 * 0.96 * 0.7) / (1 + 4 * 0.96))
    assert rates.observed == 1


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


@given(st.lists(st.tuples(st.integers(0, BINS - 1), st.booleans()), max_size=60))
def test_each_bin_is_learnt_by_itself_and_the_newest_tokens_count_most(
    seen: list[tuple[int, bool]],
) -> None:
    fresh, table = ConfidenceTable(), ConfidenceTable()
    for bin_, right in seen:
        table.learn(MARGINS[bin_], right)
    ages = range(len(seen))[::-1]
    weights, (_, total) = [], share([True] * len(seen), ages, 0.98)
    for bin_, margin in enumerate(MARGINS):
        of_bin = [right for each, right in seen if each == bin_]
        right, tried = share(of_bin, range(len(of_bin))[::-1], 0.995)
        expected = (right + 3 * fresh.chance(margin, 0.6)) / (tried + 3)
        # At a position of which nothing is known.
        assert table.chance(margin, 0.6, 1) == pytest.approx(expected)
        weights.append(
            sum(0.98**age for age, (each, _) in zip(ages, seen, strict=True) if each == bin_)
        )
    outcomes = table.outcomes(0.6)
    before = 5 * 0.98 ** len(seen)
    for margin, weight, (found, chance), (typical, _) in zip(
        MARGINS, weights, outcomes, fresh.outcomes(0.6), strict=True
    ):
        assert found == pytest.approx((weight + before * typical) / (total + before))
        assert chance == table.chance(margin, 0.6)


@pytest.mark.parametrize("bin_", range(BINS))
def test_earlier_runs_are_kept_by_the_bins_in_which_they_are_read(bin_: int) -> None:
    earlier = DraftCounts()
    for _ in range(40):
        earlier.add(0, False, MARGINS[bin_])
    before, after = ConfidenceTable(), ConfidenceTable(earlier)
    for other, margin in enumerate(MARGINS):
        # Sixteen tokens count, none of which was right, beside three of the first guess.
        part = 3 / 19 if other == bin_ else 1.0
        assert after.chance(margin, 0.5) == pytest.approx(part * before.chance(margin, 0.5))


def test_a_position_at_which_confidence_tells_too_much_is_learnt() -> None:
    table = ConfidenceTable()
    for number in range(60):
        table.learn(5.0, True, 0)
        table.learn(5.0, number % 5 == 0, 1)
    first, second, third = (table.chance(5.0, 0.6, position) for position in range(3))
    assert first > 0.9 and second < 0.35
    # Nothing was drafted there yet: by confidence alone.
    assert 0.5 < third < 0.7
    assert [first, second] == [table.chances(0.6, position)[-1] for position in (0, 1)]
    assert dict(zip(MARGINS, table.outcomes(0.6), strict=True))[5.0][1] == first


@given(st.lists(st.integers(0, BINS - 1), min_size=1, max_size=40))
def test_where_as_many_are_right_as_confidence_tells_positions_add_nothing(
    seen: list[int],
) -> None:
    position, chances = _Position(), [0.25, 0.75] * (BINS // 2)
    for bin_ in seen:  # half of the tokens, and the others, whose chances add up to all of them
        position.learn(bin_, True)
        position.learn(bin_ ^ 1, False)
    assert position.shift(chances) == pytest.approx(1, abs=0.02)


def test_odds_of_drafters_that_are_always_or_never_right() -> None:
    table = ConfidenceTable()
    assert 0 < table.chance(0.0, 0.0) < 1e-4
    assert 1 - 1e-4 < table.chance(0.0, 1.0) < 1


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
    later.add(0, False, 5.0)
    counts.extend(later)
    assert (counts.total.right, counts.total.tried) == (11, 22)
    assert counts.total.share == 0.5
    assert [each.tried for each in counts.positions] == [11, 10, 1]
    margins = [each for each in counts.margins if each.tried]
    assert [(each.right, each.tried) for each in margins] == [(0, 10), (10, 11)]
    assert counts.reports_confidence and not DraftCounts().reports_confidence
    counts.fade(0.1)
    assert (counts.total.right, counts.total.tried) == pytest.approx((1.1, 2.2))
    assert counts.positions[0].tried == pytest.approx(1.1) and later.total.tried == 2
    assert [each.tried for each in margins] == pytest.approx([1.0, 1.1])


@pytest.mark.parametrize(
    ("drafted", "committed", "known"),
    [
        ([1, 2, 3], [1, 2, 3, 4], [True, True, True]),
        ([1, 2, 3], [1, 9], [True, False]),
        ([1, 2, 3], [1, 2], [True, True]),  # two verified; the third is unknown
        ([1, 2, 3], [9], [False]),
        ([1, 9, 3], [1, 2, 3, 4], [True, False]),  # of a draft that another drafter's was taken for
        ([], [1], []),
    ],
)
def test_correctness_of_a_draft(
    drafted: list[int], committed: list[int], known: list[bool]
) -> None:
    assert correctness(drafted, committed) == known
