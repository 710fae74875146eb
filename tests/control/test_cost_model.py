"""What passes take: interpolated from a profile, learnt, robust, and padded where that pays."""

import random

import pytest

from localspec.control.drafter_cost import DrafterCost
from localspec.control.pass_costs import WIDEST, PassCosts
from localspec.control.recent_median import RecentMedian

STAIRS = {1: 12.0, 2: 21.5, 3: 30.1, 4: 20.2, 5: 30.5, 6: 38.7, 7: 46.9, 8: 36.1, 16: 50.7}


def test_between_measured_widths_lie_straight_lines() -> None:
    widths = PassCosts({1: 10.0, 4: 16.0, 8: 40.0})
    assert [widths.seconds(n) for n in (1, 2, 3, 4, 6, 8)] == [10, 12, 14, 16, 28, 40]
    assert widths.seconds(16) == 88


def test_one_measured_width_is_enough_to_start() -> None:
    assert PassCosts({1: 10.0}).seconds(4) == pytest.approx(40.0)


def test_a_pass_is_padded_to_the_next_cheaper_width() -> None:
    widths = PassCosts(STAIRS)
    assert [widths.padded(n) for n in range(1, 9)] == [1, 4, 4, 4, 5, 8, 8, 8]
    assert widths.seconds(2) == 20.2
    assert widths.padded(WIDEST + 7) == WIDEST + 7


def test_what_is_seen_replaces_the_profile() -> None:
    widths = PassCosts(STAIRS)
    for _ in range(20):
        widths.learn(1, 12.0)
        widths.learn(8, 20.0)
    assert widths.seconds(8) == pytest.approx(20.0, rel=0.05)
    assert widths.padded(5) == 8
    assert widths.seconds(1) == pytest.approx(12.0, rel=0.05)


def test_a_few_slow_passes_change_nothing() -> None:
    rng, widths = random.Random(1), PassCosts(STAIRS)
    for _ in range(300):
        widths.learn(1, 120.0 if rng.random() < 0.1 else 12.0)
    assert widths.seconds(1) == pytest.approx(12.0, rel=0.03)


def test_a_longer_text_slows_widths_that_are_not_seen_as_well() -> None:
    widths = PassCosts(STAIRS)
    for i in range(400):
        widths.learn(1, 12.0 * (1 + i / 400))
    assert widths.seconds(1) == pytest.approx(24.0, rel=0.1)
    assert widths.seconds(4) == pytest.approx(40.4, rel=0.2)


def test_nonsense_is_not_learnt() -> None:
    widths = PassCosts(STAIRS)
    for width, seconds in ((0, 1.0), (-1, 1.0), (1, 0.0), (1, -3.0), (WIDEST + 1, 1.0)):
        for _ in range(5):
            widths.learn(width, seconds)
    assert widths.seconds(1) == 12.0


@pytest.mark.parametrize(
    ("seconds", "wrong"), [(13.0, False), (30.0, False), (40.0, True), (3.0, True)]
)
def test_a_profile_that_proved_wrong_is_known(seconds: float, wrong: bool) -> None:
    widths = PassCosts(STAIRS)
    assert not widths.profile_is_wrong
    for _ in range(9):
        widths.learn(1, seconds)
    assert widths.profile_is_wrong is wrong


def test_a_slowdown_counts_once() -> None:
    """All passes take three times what the profile said, from the first on."""
    widths = PassCosts(STAIRS)
    for width in (1, 1, 4, 4, 4, 4, 4, 4, 1, 4, 1, 1):
        widths.learn(width, 3 * STAIRS[width])
        assert widths.seconds(1) in (STAIRS[1], 3 * STAIRS[1])
    assert widths.seconds(4) == pytest.approx(3 * STAIRS[4])


def test_where_no_pass_is_narrower_a_plain_one_takes_as_long() -> None:
    widths = PassCosts(STAIRS)
    widths.set_least_rows(4)
    assert widths.seconds(1) == widths.seconds(4) == STAIRS[4]
    assert widths.reading_slowdown == 1
    for _ in range(5):
        widths.learn(4, 2 * STAIRS[4])
    assert widths.seconds(1) == widths.seconds(4) == 2 * STAIRS[4]
    assert widths.seconds(8) == pytest.approx(2 * STAIRS[8])
    assert not widths.is_stale(1)


def test_recent_is_the_median_of_the_last_nine() -> None:
    recent = RecentMedian()
    for value in [1.0] * 9 + [5.0] * 5:
        recent.add(value)
    assert (len(recent), recent.median) == (9, 5.0)
    recent.add(1.0)
    assert recent.median == 5.0


def test_a_drafter_s_first_token_its_further_ones_and_its_reading() -> None:
    cost = DrafterCost()
    for _ in range(5):
        cost.learn_first(3.0, behind=1)
        cost.learn_further(2.0)
        cost.learn_first(3.0 + 98 * 0.5, behind=100)
        cost.learn_first(4.0, behind=5)  # too little to say what reading takes
    assert cost.of(1) == 3.0
    assert cost.of(4) == 9.0
    assert cost.catching_up(12) == 5.0
    assert cost.reading(1000) == 500.0


def test_what_a_long_text_took_is_told_from_what_a_short_one_takes() -> None:
    widths = PassCosts({1: 1.0, 4: 1.2})
    assert widths.reading_slowdown == 1
    for _ in range(9):
        widths.learn(1, 7.0)
    assert widths.reading_slowdown == pytest.approx(4)
    cost = DrafterCost(0.0, 0.0, 0.5)
    for _ in range(5):
        cost.learn_first(98 * 4.0, 100, widths.reading_slowdown)
    assert cost.reading(10) == pytest.approx(10)
    cost = DrafterCost(backlog=1.0)
    assert cost.reading(10, widths.reading_slowdown) == pytest.approx(40)
    assert cost.catching_up(12, widths.reading_slowdown) == pytest.approx(40)
    for _ in range(9):
        widths.learn(1, 0.5)
    assert widths.reading_slowdown == 1


def test_one_slow_token_does_not_spoil_what_was_measured() -> None:
    """As the first one of all may be, while weights come from the disk."""
    cost = DrafterCost(0.003, 0.002, 0.0005)
    cost.learn_first(1.5, behind=1)
    cost.learn_further(0.9)
    assert cost.of(3) == pytest.approx(0.007)


def test_a_proposal_that_tells_nothing_of_its_tokens() -> None:
    each, free = DrafterCost(), DrafterCost()
    each.learn_whole(8.0, 4, cheap=False)
    free.learn_whole(8.0, 4, cheap=True)
    assert (each.of(1), each.of(8)) == (2.0, 16.0)
    assert free.of(1) == free.of(8) == 8.0
