"""Pass costs and drafter costs: interpolated, learnt, robust; padding where it is faster."""

import random
from collections.abc import Mapping

import pytest

from localspec.control.base_costs import WIDEST
from localspec.control.cost_model import CostModel
from localspec.control.cost_profile import CostProfile, DrafterSeconds
from localspec.control.drafter_cost import DrafterCost
from localspec.control.pass_costs import PassCosts
from localspec.control.recent_median import ENOUGH, RecentMedian

STAIRS = {1: 12.0, 2: 21.5, 3: 30.1, 4: 20.2, 5: 30.5, 6: 38.7, 7: 46.9, 8: 36.1, 16: 50.7}


def test_costs_between_measured_widths_are_interpolated() -> None:
    costs = PassCosts({1: 10.0, 4: 16.0, 8: 40.0})
    assert [costs.seconds(n) for n in (1, 2, 3, 4, 6, 8)] == [10, 12, 14, 16, 28, 40]
    assert costs.seconds(16) == 88


@pytest.mark.parametrize("before", [40.0, 30.0])
def test_a_fall_to_the_last_measured_width_does_not_go_on(before: float) -> None:
    """Nor a small step: wider passes rise at least as all measured ones did on the whole."""
    costs = PassCosts({1: 10.0, 4: before, 8: 31.0})
    assert [costs.unpadded(n) for n in (8, 9, 16, 32)] == [31, 34, 55, 103]
    costs = PassCosts({1: 10.0, 4: 9.0, 8: 6.0})
    assert [costs.unpadded(n) for n in (8, 9, 32)] == [6, 6, 6]


def test_what_is_learnt_of_a_width_holds_between_it_and_its_neighbours() -> None:
    """Copies are of all lengths, and each would be believed cheap until it was made three times."""
    costs = PassCosts({1: 10.0, 8: 24.0, 16: 40.0})
    assert [costs.seconds(n) for n in (24, 32)] == [56, 72]
    for _ in range(3):
        costs.learn(1, 10.0)
        costs.learn(32, 104.0)
    costs.learn(1, 10.0)
    assert [costs.seconds(n) for n in (8, 16, 24, 32, 33)] == [24, 40, 72, 104, 108]


def test_a_step_of_the_last_two_widths_is_no_slope() -> None:
    costs = PassCosts({n: seconds for n, seconds in STAIRS.items() if n in (1, 2, 4, 8)})
    for _ in range(3):
        costs.learn(1, 12.0)
        costs.learn(9, 48.0)
    costs.learn(1, 12.0)
    assert costs.unpadded(9) == 48
    assert costs.unpadded(16) < 90


def test_a_change_of_the_machine_between_two_anchors_is_none_of_their_costs() -> None:
    costs = measure(PassCosts({1: 10.0, 5: 20.0, 8: 30.0}), {1: 10.0, 5: 20.0, 8: 30.0})
    for _ in range(8):
        costs.learn(5, 20.0)
    for width, seconds in ((1, 10.0), (1, 10.0), (8, 60.0), (8, 60.0), (8, 60.0)):
        costs.learn(width, seconds)
    for width, seconds in ((8, 60.0), (1, 20.0), (8, 60.0)):
        costs.learn(width, seconds)
    assert [costs.seconds(n) for n in (1, 5, 8)] == [20, 40, 60]


def test_what_an_anchor_took_before_a_change_does_not_come_back() -> None:
    costs = PassCosts({1: 10.0, 4: 18.0, 5: 20.0, 6: 22.0, 7: 24.0})
    for _ in range(9):
        costs.learn(5, 40.0)
    for _ in range(14):  # the first ones tell what they take beside the anchor
        costs.learn(1, 20.0)
    for width in (5, 6, 5, 7, 4, 5):
        costs.learn(width, 10.0 + 2 * width)
    assert costs.seconds(5) == 20


def test_only_the_present_anchor_keeps_a_cost_that_was_interpolated() -> None:
    costs = PassCosts({1: 10.0, 8: 24.0, 16: 40.0})
    for width in (20, 21, 22, 23, 24):
        costs.learn(width, 8.0 + 2 * width)
    for _ in range(6):
        costs.learn(1, 10.0)
    for _ in range(3):
        costs.learn(32, 104.0)
        costs.learn(1, 10.0)
    assert [costs.seconds(n) for n in (16, 20, 24, 32)] == [40, 56, 72, 104]


def test_what_is_learnt_of_plain_passes_holds_for_all_that_are_padded_to_their_rows() -> None:
    costs = PassCosts({1: 10.0, 4: 20.0, 8: 30.0})
    costs.set_least_rows(4)
    for _ in range(6):
        costs.learn(8, 30.0)
    for _ in range(3):
        costs.learn(4, 24.0)
    costs.learn(8, 30.0)
    assert [costs.seconds(n) for n in (1, 2, 3, 4, 6, 8)] == [24, 24, 24, 24, 27, 30]


def test_one_measured_width_is_enough_to_start() -> None:
    assert PassCosts({1: 10.0}).seconds(4) == pytest.approx(40.0)


def test_a_pass_is_padded_to_the_next_cheaper_width() -> None:
    costs = PassCosts(STAIRS)
    assert [costs.padded(n) for n in range(1, 9)] == [1, 4, 4, 4, 5, 8, 8, 8]
    assert costs.seconds(2) == 20.2
    assert costs.padded(WIDEST + 7) == WIDEST + 7


@pytest.mark.parametrize("really", [20.2, 33.0])
def test_a_padding_that_a_wrong_profile_asks_for_is_found_out(really: float) -> None:
    """Three passes without it tell; where it pays, nothing else is lost."""
    costs, asked = PassCosts(STAIRS | {4: 33.0}), 0
    assert costs.padded(4) == 5
    for _ in range(60):
        costs.learn(1, 12.0)
        rows = costs.padded(4)
        asked += rows == 4
        costs.learn(rows, {4: really, 5: 30.5}[rows])
    assert costs.padded(4) == (4 if really < 30 else 5)
    assert asked > 40 if really < 30 else asked == 3
    assert costs.unpadded(4) == pytest.approx(really, rel=0.02)


def test_the_trial_of_a_padding_ends_where_passes_have_a_least_width() -> None:
    costs = PassCosts(STAIRS)
    costs.set_least_rows(2)
    asked = 0
    for _ in range(80):
        rows = costs.padded(2)
        asked += rows == 2
        costs.learn(rows, STAIRS[rows])
        costs.learn(2, STAIRS[2])
    assert asked <= 3


def test_observed_passes_replace_the_profile() -> None:
    costs = PassCosts(STAIRS)
    for _ in range(20):
        costs.learn(1, 12.0)
        costs.learn(8, 20.0)
    assert costs.seconds(8) == pytest.approx(20.0, rel=0.05)
    assert costs.padded(7) == 8
    assert costs.seconds(1) == pytest.approx(12.0, rel=0.05)


def test_a_few_slow_passes_change_nothing() -> None:
    rng, costs = random.Random(1), PassCosts(STAIRS)
    for _ in range(300):
        costs.learn(1, 120.0 if rng.random() < 0.1 else 12.0)
    assert costs.seconds(1) == pytest.approx(12.0, rel=0.03)


def test_a_longer_text_slows_unseen_widths_too() -> None:
    costs = PassCosts(STAIRS)
    for i in range(400):
        costs.learn(1, 12.0 * (1 + i / 400))
    assert costs.seconds(1) == pytest.approx(24.0, rel=0.1)
    assert costs.seconds(4) == pytest.approx(40.4, rel=0.2)


@pytest.mark.parametrize(("drafting", "after"), [(2.0, 1.0), (1.0, 2.0)])
def test_a_slow_spell_that_begins_or_ends_between_drafts_and_plain_steps(
    drafting: float, after: float
) -> None:
    """No pass of four rows is computed after it; it takes as much longer or less all the same."""
    costs = PassCosts(STAIRS)
    for number in range(60):
        width = 1 if number % 8 == 7 else 4
        costs.learn(width, drafting * STAIRS[width])
    assert costs.seconds(4) == pytest.approx(drafting * STAIRS[4])
    for _ in range(12):
        costs.learn(1, after * STAIRS[1])
    assert costs.seconds(1) == pytest.approx(after * STAIRS[1])
    assert costs.seconds(4) == pytest.approx(after * STAIRS[4])
    for _ in range(12):
        costs.learn(4, after * STAIRS[4])
    assert costs.seconds(1) == pytest.approx(after * STAIRS[1])


@pytest.mark.parametrize("every", [2, 3, 4, 5])
def test_a_shape_that_differs_is_learnt_beside_the_most_frequent_width(every: int) -> None:
    """Four rows take twice what the profile says; a plain step comes now and then."""
    costs = PassCosts(STAIRS)
    for number in range(10 * every):
        width = 1 if number % every == 0 else 4
        costs.learn(width, STAIRS[1] if width == 1 else 2 * STAIRS[4])
    assert costs.seconds(1) == pytest.approx(STAIRS[1], rel=0.01)
    assert costs.unpadded(4) == pytest.approx(2 * STAIRS[4], rel=0.01)


def test_impossible_passes_are_not_learnt() -> None:
    costs = PassCosts(STAIRS)
    for width, seconds in ((0, 1.0), (-1, 1.0), (1, 0.0), (1, -3.0), (65, 1.0)):
        for _ in range(5):
            costs.learn(width, seconds)
    assert costs.seconds(1) == 12.0


@pytest.mark.parametrize(
    ("seconds", "wrong"), [(13.0, False), (30.0, False), (40.0, True), (3.0, True)]
)
def test_a_wrong_profile_is_recognised(seconds: float, wrong: bool) -> None:
    costs = PassCosts(STAIRS)
    assert not costs.profile_is_wrong
    for _ in range(ENOUGH - 1):
        costs.learn(1, seconds)
        assert not costs.profile_is_wrong  # so few passes may be slow by chance
    costs.learn(1, seconds)
    assert costs.profile_is_wrong is wrong


def test_a_wrong_profile_is_recognised_where_plain_passes_are_rare() -> None:
    costs = PassCosts(STAIRS)
    for _ in range(ENOUGH):
        assert not costs.profile_is_wrong
        costs.learn(1, 4 * STAIRS[1])
        for _ in range(7):
            costs.learn(4, 4 * STAIRS[4])
    assert costs.profile_is_wrong


def test_the_factor_is_of_the_new_anchor_alone() -> None:
    costs = PassCosts(STAIRS)
    for width in [1] * 9 + [4, 4, 4, 8, 8] + [4]:
        costs.learn(width, STAIRS[width])
        assert costs.seconds(4) == pytest.approx(STAIRS[4])


def test_the_cost_of_the_new_anchor_is_as_before_and_the_median_pass_sets_the_factor() -> None:
    costs = PassCosts({1: 10.0, 4: 20.0, 8: 30.0})
    for width, seconds in ((4, 20.0), (4, 24.0), (4, 28.0), (8, 60.0), (8, 60.0)):
        costs.learn(width, seconds)
    assert costs.seconds(1) == pytest.approx(1.4 * 10.0)
    costs.learn(4, 24.0)
    assert [costs.seconds(rows) for rows in (1, 4)] == pytest.approx([12.0, 24.0])


def test_what_a_width_took_before_all_became_slower_is_no_part_of_its_cost() -> None:
    costs = PassCosts({1: 10.0, 8: 30.0})
    for width, seconds in [(1, 10.0)] * 3 + [(8, 60.0), (1, 10.0)] * 2 + [(1, 20.0)] * 9:
        costs.learn(width, seconds)
    for width, seconds in ((8, 60.0), (1, 20.0)):
        costs.learn(width, seconds)
    assert costs.seconds(8) == 60.0
    assert not costs.knows(8)


@pytest.mark.parametrize("after", [5.0, 20.0])
def test_a_cost_is_stale_once_all_have_become_slower_or_quicker(after: float) -> None:
    costs = PassCosts({1: 10.0, 8: 30.0})
    assert costs.is_stale(8)
    for width, seconds in [(1, 10.0)] * 3 + [(8, 30.0), (1, 10.0)] * 3:
        costs.learn(width, seconds)
    assert not costs.is_stale(8)
    for _ in range(9):
        costs.learn(1, after)
    assert costs.is_stale(8) and not costs.is_stale(1)


def test_how_often_a_plain_step_measures_what_plain_steps_cost() -> None:
    """Sooner while that is not known."""
    costs = PassCosts({1: 10.0, 8: 30.0})

    def first() -> int:
        return next(n for n in range(999) if costs.is_plain_due(n, alone=True))

    assert first() == 4
    learn(costs, 1, 10.0)
    assert first() == 256


def test_texts_that_share_decodes_count_these_so_that_all_do_without_drafts_at_once() -> None:
    costs = PassCosts({1: 10.0, 8: 30.0})

    def due(passes: int, seconds: float = 30.0, speed: float = 1.0) -> list[int]:
        found = []
        for number in range(1, passes + 1):
            costs.learn(8, seconds)
            # What this text did by itself says nothing of what all did.
            if costs.is_plain_due(number % 3, 2, speed, alone=False):
                found.append(number)
        return found

    assert due(12) == [4, 8, 12]
    for _ in range(3):
        assert not costs.knows(2)
        costs.learn(2, 12.0)
        assert not costs.is_plain_due(999, 2, alone=False)
        learn(costs, 8, 30.0, 5)
    assert costs.knows(2) and due(260) == [256 - 5]
    learn(costs, 2, 12.0, 1)
    assert due(40, 60.0) == [8, 16, 24, 32, 40], "all passes take longer now"
    learn(costs, 2, 24.0, 1)
    assert due(64, 60.0, 1.1) == [64], "drafts save much"
    costs.share(3)  # another text begins, which has counted no passes
    assert not costs.is_plain_due(999, 3, alone=False)
    costs.learn(8, 30.0)
    costs.share(3)
    learn(costs, 8, 30.0)
    assert costs.is_plain_due(0, 3, alone=False)
    costs.share(200)
    learn(costs, 8, 30.0, 3)
    costs.note(8)  # a pass that told another text what it takes
    assert costs.is_plain_due(0, 200, alone=False)


def test_the_less_drafts_save_the_sooner_a_plain_step_measures_what_plain_steps_cost() -> None:
    costs = PassCosts({1: 10.0, 8: 30.0})
    learn(costs, 1, 10.0)

    def first(speed: float) -> int:
        return next(n for n in range(999) if costs.is_plain_due(n, 1, speed, alone=True))

    assert [first(speed) for speed in (0.5, 1.0, 1.1, 9.0)] == [32, 32, 70, 256]


def test_widths_that_were_not_seen_are_off_as_those_that_were() -> None:
    profile = {1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0, 16: 16.0}
    quicker = measure(PassCosts(profile), {1: 1.0, 4: 1.3})
    # A tenth of what they took beyond one row, and a bit more, as that may be wrong.
    more = (0.3 + 0.05) / 3
    expected = [1 + more, 1.3, 1 + 7 * more, 1 + 15 * more]
    assert [quicker.unpadded(n) for n in (2, 4, 8, 16)] == pytest.approx(expected)
    # One that takes hardly more than a plain pass tells nothing of wide ones.
    flat = measure(PassCosts({1: 1.0, 2: 1.12, 8: 2.5, 32: 8.0}), {1: 1.0, 2: 0.99})
    assert flat.unpadded(32) == pytest.approx(8.0 * 0.99 / 1.12)
    # Nor are these free where that one seems to be.
    free = measure(PassCosts({1: 1.0, 2: 1.5, 8: 4.5, 32: 16.5}), {1: 1.0, 2: 0.99})
    assert free.unpadded(32) == pytest.approx(1 + 0.1 * 15.5)
    # They take so many times as long: what is believed too dear would not be measured.
    slower = measure(PassCosts({1: 1.0, 2: 1.02, 4: 1.06, 8: 1.14}), {1: 1.0, 4: 2.12})
    assert [slower.unpadded(n) for n in (4, 8)] == pytest.approx([2.12, 2.28])
    assert slower.confirmed == {1, 4} and slower.is_stale(8)


def test_what_is_not_known_does_not_tell_that_all_passes_have_become_slower() -> None:
    costs = PassCosts({1: 1.0, 2: 1.02, 4: 1.06, 8: 1.14})
    learn(costs, 1, 1.0)
    for width in (7, 8, 7, 8, 6, 7, 8, 7, 8, 6):
        costs.learn(width, 3.0)
    assert costs.unpadded(1) == 1.0
    assert [costs.unpadded(n) for n in (7, 8)] == pytest.approx([3.0, 3.0])
    # Those that are known do tell it.
    for width in (7, 8, 7, 8, 7):
        costs.learn(width, 6.0)
    assert costs.unpadded(1) == pytest.approx(2.0)


def between_drafts(plain: float, varies: float = 1.0, rare: int = 8) -> PassCosts:
    """After runs of drafted passes with a plain one in between, a plain one takes so long.

    varies: how many times as long every fourth pass takes as the others. rare: the passes of a run.
    """
    costs = measure(PassCosts({1: 10.0, 8: 30.0}), {1: 10.0, 8: 30.0})
    learn(costs, 1, 10.0, 9)
    for took in (10.0, 10.0, 10.0, plain):
        for number in range(rare):
            costs.learn(8, 30.0 * (varies if number % 4 == 1 else 1.0))
        costs.learn(1, took)
    learn(costs, 8, 30.0, 4)
    return costs


def test_plain_passes_of_which_three_between_drafts_were_quicker_have_become_quicker() -> None:
    costs = between_drafts(5.0)
    # The next ones come soon.
    assert not costs.is_plain_due(3, alone=True) and costs.is_plain_due(4, alone=True)
    for seconds in (6.0, 5.0):
        assert costs.unpadded(1) == pytest.approx(10.0)
        costs.learn(1, seconds)
        learn(costs, 8, 30.0, 4)
    assert [costs.unpadded(rows) for rows in (1, 8)] == pytest.approx([6.0, 30.0])
    assert not costs.is_plain_due(4, alone=True)


def test_a_plain_pass_as_long_as_before_ends_the_doubt() -> None:
    costs = between_drafts(5.0)
    for seconds in (5.0, 10.0, 5.0):
        costs.learn(1, seconds)
        learn(costs, 8, 30.0, 4)
    assert costs.unpadded(1) == pytest.approx(10.0)
    assert not costs.is_plain_due(4, alone=True)


@pytest.mark.parametrize(
    ("plain", "varies", "rare"),
    [(6.0, 0.5, 8), (9.2, 1.0, 8), (5.0, 1.0, 7)],
    ids=["as other passes now and then", "hardly quicker", "measured often"],
)
def test_what_does_not_let_plain_passes_be_doubted(plain: float, varies: float, rare: int) -> None:
    assert not between_drafts(plain, varies, rare).is_plain_due(4, alone=True)


def test_decodes_wider_than_a_profile_are_learnt_in_this_run_alone() -> None:
    run = measure(PassCosts({1: 10.0, 32: 72.0}), {1: 10.0, 40: 100.0})
    assert run.knows(40) and run.unpadded(40) == pytest.approx(100.0)
    assert run.confirmed == {1} and 40 not in run.relative
    assert run.of_plain(126) == run.seconds(126) == pytest.approx(2 * run.seconds(63))


def test_states_that_keep_unequal_passes_apart_are_never_padded() -> None:
    costs = PassCosts(STAIRS, unequal_apart=True)
    assert costs.padded(2) == 2 and costs.seconds(2) == STAIRS[2]


def learn(costs: PassCosts, width: int, seconds: float, times: int = ENOUGH) -> None:
    for _ in range(times):
        costs.learn(width, seconds)


def measure(costs: PassCosts, seconds: Mapping[int, float]) -> PassCosts:
    """Learn what passes of these widths take, beside plain ones."""
    for width, each in seconds.items():
        learn(costs, 1, seconds[1])
        learn(costs, width, each)
    learn(costs, 1, seconds[1])
    return costs


def test_the_next_run_starts_from_what_this_one_has_learnt() -> None:
    # The machine is 1.2 times as slow in this run.
    run = measure(PassCosts(STAIRS), {1: 1.2 * STAIRS[1], 4: 2 * STAIRS[4], 6: 60.0})
    assert run.confirmed == {1, 4, 6}
    profile = CostProfile(STAIRS, {"small": DrafterSeconds(1.0, 1.0, 0.1)})
    after = profile.after(run)
    assert (after.passes, after.drafters) == (profile.passes, profile.drafters)
    later = CostModel.of(after).passes
    for width in range(1, WIDEST + 1):
        assert 1.2 * later.unpadded(width) == pytest.approx(run.unpadded(width))
    assert after.step("small", 3) == pytest.approx((later.seconds(4) + 3) / STAIRS[1])
    # Nothing of it counts as measured in the run to come.
    assert not later.confirmed and not later.knows(1) and later.is_stale(4)
    # That run learns something else.
    again = after.after(measure(later, {1: STAIRS[1], 4: 1.5 * STAIRS[4]}))
    assert again.expected[4] == pytest.approx(1.5 * STAIRS[4])
    # Four rows take 0.9 of what they took, so what was not seen does too.
    assert again.expected[6] == pytest.approx(0.9 * 50.0)


def test_the_anchor_of_a_run_is_kept() -> None:
    """Its width is not in the profile, and nearly all passes have it."""
    profile = CostProfile({1: 1.0, 2: 1.2, 4: 1.4, 8: 1.8})
    run = PassCosts(profile.passes)
    for width, seconds in [(6, 3.2)] * 6 + [(4, 1.4), (6, 3.2), (1, 1.0), (6, 3.2)] * 4:
        run.learn(width, seconds)
    later = CostModel.of(profile.after(run)).passes
    for width, seconds in {1: 1.0, 4: 1.4, 6: 3.2}.items():
        assert run.unpadded(width) == pytest.approx(seconds)
        assert later.unpadded(width) == pytest.approx(seconds)


def test_runs_do_not_add_up_to_another_speed() -> None:
    profile = CostProfile(STAIRS)
    for slowdown in (2.0, 4.0, 8.0):
        slow = {1: slowdown * STAIRS[1], 4: slowdown * STAIRS[4]}
        run = measure(CostModel.of(profile).passes, slow)
        assert run.profile_is_wrong is (slowdown > 3)
        profile = profile.after(run)
        assert profile.expected == pytest.approx(STAIRS)


@pytest.mark.parametrize("used", [{1: 1.0}, {1: 1.0, 2: 1.1}], ids=["plain", "narrow"])
def test_what_seems_too_dear_to_be_used_is_forgotten(used: dict[int, float]) -> None:
    measured, dear = {1: 1.0, 4: 1.4, 8: 2.0}, {2: 1.1, 4: 9.0, 8: 18.0}
    profile = CostProfile(measured, learnt=dear)
    assert profile.after(CostModel.of(profile).passes) == profile  # nothing was written
    for run in range(3):
        assert profile.expected[4] == 9.0 and profile.unseen.get(4, 0) == run
        profile = profile.after(measure(CostModel.of(profile).passes, used))
    assert (profile.expected[4], profile.expected[8]) == (1.4, 2.0)
    assert (2 in profile.learnt) is (2 in used)


def test_a_profile_is_plausible_if_each_drafter_is_quicker_than_the_target() -> None:
    quick, slow = DrafterSeconds(3.0, 0.9, 9.0), DrafterSeconds(0.1, 1.0, 0.1)
    assert CostProfile({1: 1.0}, {"quick": quick}).is_plausible
    assert not CostProfile({1: 1.0}, {"quick": quick, "slow": slow}).is_plausible


def test_what_a_copy_learns_is_its_own_and_all_policies_share_a_drafters_cost() -> None:
    costs = CostModel(PassCosts({1: 10.0}), {"small": DrafterCost(1.0)})
    copy = costs.copy()
    for _ in range(9):
        copy.passes.learn(1, 20.0)
        copy.drafter("small").learn_first(3.0, backlog=1)
    assert (copy.passes.seconds(1), copy.drafter("small").first) == (20.0, 3.0)
    assert (costs.passes.seconds(1), costs.drafter("small").first) == (10.0, 1.0)
    assert costs.drafter("new") is costs.drafter("new")


def test_runs_of_plain_passes_alone_leave_a_profile_as_it_is() -> None:
    profile = CostProfile(STAIRS)
    assert profile.after(measure(PassCosts(STAIRS), {1: 2 * STAIRS[1]})) == profile


def test_a_run_with_other_plain_passes_is_not_kept() -> None:
    """Where a text must be reproducible, plain passes are as wide as others."""
    run = PassCosts(STAIRS)
    run.set_least_rows(4)
    for width in (4, 8, 4):
        learn(run, width, STAIRS[width])
    assert run.knows(8) and CostProfile(STAIRS).after(run) == CostProfile(STAIRS)


def test_a_slowdown_counts_once() -> None:
    """All passes take three times as long as in the profile, from the first on."""
    costs = PassCosts(STAIRS)
    for width in (1, 1, 4, 4, 4, 4, 4, 4, 1, 4, 1, 1):
        costs.learn(width, 3 * STAIRS[width])
        assert costs.seconds(1) in (STAIRS[1], 3 * STAIRS[1])
    assert costs.seconds(4) == pytest.approx(3 * STAIRS[4])


def test_a_plain_pass_costs_as_much_as_the_least_rows() -> None:
    costs = PassCosts(STAIRS)
    costs.set_least_rows(4)
    assert costs.seconds(1) == costs.seconds(4) == STAIRS[4]
    assert costs.reading_slowdown == 1
    for _ in range(5):
        costs.learn(4, 2 * STAIRS[4])
    assert costs.seconds(1) == costs.seconds(4) == 2 * STAIRS[4]
    assert costs.seconds(8) == pytest.approx(2 * STAIRS[8])
    assert not costs.is_stale(1)


def test_the_recent_median_is_over_nine_values() -> None:
    recent = RecentMedian()
    for value in [1.0] * 9 + [5.0] * 5:
        recent.add(value)
    assert (len(recent), recent.median) == (9, 5.0)
    recent.add(1.0)
    assert recent.median == 5.0
    recent, medians = RecentMedian(), []
    for value in (4.0, 2.0, 3.0, 9.0):
        recent.add(value)
        medians.append(recent.median)
    assert medians == [4.0, 2.0, 3.0, 3.0]


def test_a_drafter_cost_of_first_token_further_tokens_and_reading() -> None:
    cost = DrafterCost()
    for _ in range(5):
        cost.learn_first(3.0, backlog=1)
        cost.learn_further(2.0)
        cost.learn_first(3.0 + 98 * 0.5, backlog=100)
        cost.learn_first(4.0, backlog=5)  # too few tokens to learn the reading
    assert cost.of(1) == 3.0
    assert cost.of(4) == 9.0
    assert cost.catch_up_seconds(12) == 5.0
    assert cost.reading_seconds(1000) == 500.0


def test_the_rows_of_a_pass_cost_what_they_took_and_a_drawn_token_what_drawing_takes() -> None:
    cost = DrafterCost(1.0, 0.25, reading=0.5)
    for _ in range(9):
        cost.learn_pass(4.0, rows=5, backlog=2)
        cost.learn_further(0.01)
        cost.learn_pass(4.0 + 3 * 0.5, rows=5, backlog=5)  # three tokens more in the same pass
    assert cost.of(5) == pytest.approx(4.0 + 4 * 0.01)
    assert cost.of(1) == pytest.approx(2.0)
    assert cost.table(5)[1:] == pytest.approx([cost.of(depth) for depth in range(1, 6)])


def test_reading_a_long_text_is_slower() -> None:
    costs = PassCosts({1: 1.0, 4: 1.2})
    assert costs.reading_slowdown == 1
    for _ in range(9):
        costs.learn(1, 7.0)
    assert costs.reading_slowdown == pytest.approx(4)
    cost = DrafterCost(0.0, 0.0, 0.5)
    for _ in range(5):
        cost.learn_first(98 * 4.0, 100, costs.reading_slowdown)
    assert cost.reading_seconds(10) == pytest.approx(10)
    cost = DrafterCost(reading=1.0)
    assert cost.reading_seconds(10, costs.reading_slowdown) == pytest.approx(40)
    assert cost.catch_up_seconds(12, costs.reading_slowdown) == pytest.approx(40)
    for _ in range(9):
        costs.learn(1, 0.5)
    assert costs.reading_slowdown == 1


def test_a_longer_backlog_costs_a_change_of_the_rows_besides() -> None:
    cost = DrafterCost(0.5, 0.1, reading=0.5, change=3.0)
    assert [cost.reading_seconds(tokens, 2.0) for tokens in (0, 10)] == [0.0, 13.0]
    assert [cost.catch_up_seconds(backlog) for backlog in (0, 2, 3)] == [0.0, 0.0, 3.5]
    for _ in range(ENOUGH):
        cost.learn_first(0.5 + 3.0 + 98 * 0.25, backlog=100)
    assert cost.reading == pytest.approx(0.25)
    for _ in range(9):
        cost.learn_first(1.0, backlog=100)  # less than the change alone
    assert cost.reading == 0.0
    for _ in range(9):
        cost.learn_first(0.75, backlog=2)
        for backlog in (3, 15):
            cost.learn_first(9.0, backlog)
    assert (cost.first, cost.reading) == (0.75, 0.0)


def test_what_nobody_knows_is_learnt_from_one_token_and_else_from_three() -> None:
    unknown, known = DrafterCost(), DrafterCost(1.0, 1.0, 1.0)
    for count in range(1, ENOUGH + 1):
        for cost in (unknown, known):
            cost.learn_first(3.0, backlog=1)
            cost.learn_first(3.0 + 98 * 0.5, backlog=100)
            cost.learn_further(2.0)
            assert cost.knows_further is (count == ENOUGH)
        assert (unknown.first, unknown.further) == (3.0, 2.0)
        learnt = (3.0, 2.0) if count == ENOUGH else (1.0, 1.0)
        assert (known.first, known.further) == pytest.approx(learnt)
    assert unknown.reading == pytest.approx(0.5)


def test_a_pass_of_a_whole_draft_costs_what_was_believed_until_three_were_seen() -> None:
    cost, slow = DrafterCost(1.0, 0.25, reading=0.5), DrafterCost(1.0, 0.25, reading=0.5)
    cost.learn_pass(9.0, rows=5, backlog=1)
    assert [cost.of(depth) for depth in (1, 5, 9)] == pytest.approx([1.0, 2.0, 3.0])
    for _ in range(9):
        cost.learn_pass(2.0 + 98 * 0.25, rows=5, backlog=100)
        slow.learn_pass(4.0 + 2 * 3 * 0.5, rows=5, backlog=5, slowdown=2.0)
    assert cost.reading == pytest.approx(0.25)
    assert cost.of(5) == pytest.approx(2.0)
    assert slow.of(5) == pytest.approx(4.0)


def test_one_slow_token_does_not_change_the_cost() -> None:
    """The very first token may be slow, while the weights are read from the disk."""
    cost = DrafterCost(0.003, 0.002, 0.0005)
    cost.learn_first(1.5, backlog=1)
    cost.learn_further(0.9)
    assert cost.of(3) == pytest.approx(0.007)


def test_a_whole_draft_whose_tokens_were_not_timed() -> None:
    each, free = DrafterCost(), DrafterCost()
    each.learn_whole(8.0, 4, cheap=False)
    free.learn_whole(8.0, 4, cheap=True)
    assert (each.of(1), each.of(8)) == (2.0, 16.0)
    assert free.of(1) == free.of(8) == 8.0


# Of several texts.

FLAT = {1: 1.0, 2: 1.2, 4: 1.6, 8: 2.4, 16: 4.0, 32: 7.2, 64: 13.6}


def test_the_rows_of_several_texts_cost_as_much_as_those_of_one() -> None:
    costs = PassCosts(FLAT)
    assert costs.of_round((1, 3, 4)) == costs.seconds(8)
    assert costs.of_round((64, 64)) == pytest.approx(2 * costs.seconds(64))


def test_where_unequal_texts_share_nothing_only_equal_rows_are_cheap() -> None:
    costs = PassCosts(FLAT, unequal_apart=True)
    assert costs.of_round((3, 3, 3, 3)) == costs.seconds(12)
    assert costs.of_round((1, 3, 1)) == costs.seconds(2) + costs.seconds(3)


def test_what_is_learnt_of_several_texts_is_the_cost_of_all_rows() -> None:
    """Decodes of four texts that take twice what the profile says: so does a text alone."""
    costs = PassCosts(FLAT)
    for _ in range(40):
        costs.learn(4, 2 * 1.6)
    assert costs.seconds(4) == pytest.approx(3.2, rel=0.05)
    assert costs.seconds(1) == pytest.approx(2.0, rel=0.05)


def test_what_reading_a_few_tokens_takes_is_learnt_by_itself() -> None:
    """The end of a prompt is read in one small pass, and all of it in large ones."""
    cost = DrafterCost(0.5, 0.1, reading=0.25)
    for _ in range(ENOUGH):
        cost.learn_first(0.5 + 998 * 0.125, backlog=1000)
    assert cost.reading_seconds(64) == 64 * cost.reading_seconds(1) == 64 * 0.125
    for _ in range(ENOUGH):
        cost.learn_first(0.5 + 62 * 0.5, backlog=64)
    assert cost.reading_seconds(64) == 32.0
    assert cost.reading_seconds(1000) == 125.0
