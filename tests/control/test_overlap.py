"""Overlap: tokens are drawn ahead where that pays, by what passes take with it and without."""

from random import Random

import pytest

from localspec.bench.experiments.drawing_ahead import SimulatedAhead, SimulatedText, speed
from localspec.bench.experiments.simulated_drafter import COSTS
from localspec.control.drafter_cost import DrafterCost
from localspec.control.overlap import Overlap

COST = DrafterCost(first=0.1, further=0.1)


def drawn(
    overlap: Overlap,
    count: int,
    *,
    chance: float = 0.8,
    seconds: float = 1.0,
    slowdown: float = 1.0,
) -> list[int]:
    """How many tokens are drawn ahead in so many drafts.

    slowdown: how many times longer a pass then takes.
    """
    found = []
    for _ in range(count):
        found.append(overlap.tokens(chance, 4, seconds, COST))
        if found[-1]:
            overlap.learn(found[-1], slowdown * seconds, seconds)
    return found


def test_as_many_tokens_are_drawn_as_the_pass_leaves_time_for() -> None:
    assert drawn(Overlap(), 1) == [10]
    assert drawn(Overlap(), 1, seconds=0.29) == [2]
    # One token alone would be the guess, and nothing behind it.
    assert drawn(Overlap(), 3, seconds=0.19) == [0, 0, 0]
    assert Overlap().tokens(0.8, 4, 1.0, DrafterCost()) == 0


def test_some_passes_stay_alone_to_be_compared_with() -> None:
    assert drawn(Overlap(), 64).count(0) == 4


def test_a_pass_that_is_slowed_down_too_much_stays_alone() -> None:
    # 0.8 of four tokens are 0.3 plain passes, the slowdown is 0.5.
    overlap = Overlap()
    assert drawn(overlap, 1, slowdown=1.5) == [10]
    assert overlap.slowdown == 1.5
    assert 2 <= sum(map(bool, drawn(overlap, 400, slowdown=1.5))) <= 6


def test_drawing_that_does_not_pay_is_tried_again_after_1_4_and_16_drafts() -> None:
    overlap = Overlap()
    found = drawn(overlap, 40, slowdown=1.5)
    # The 16th draft, which stays alone to be compared with, is no waiting.
    assert [number for number, tokens in enumerate(found) if tokens] == [0, 2, 7, 25]
    drawn(overlap, 2000, slowdown=1.5)
    assert 5 <= sum(map(bool, drawn(overlap, 3000, slowdown=1.5))) <= 6
    # Once it has paid, it is tried again as soon as at first.
    drawn(overlap, 1200)
    found = drawn(overlap, 40, slowdown=1.5)
    assert all(found[:4]) and sum(map(bool, found)) == 5 + 3


def test_the_guess_itself_saves_nothing() -> None:
    """Of three tokens that are drawn in a pass, two are of the next draft."""
    for slowdown, pays in ((1.5, True), (1.6, False)):  # 0.8 x 0.2 s against 0.15 and 0.18 s
        overlap = Overlap()
        drawn(overlap, 100, seconds=0.3)
        found = drawn(overlap, 100, seconds=0.3, slowdown=slowdown)
        assert (sum(map(bool, found)) > 80) is pays


def test_it_is_taken_up_again_once_it_pays() -> None:
    overlap = Overlap()
    drawn(overlap, 100, slowdown=1.5)
    drawn(overlap, 600, slowdown=1.01)
    assert drawn(overlap, 32, slowdown=1.01).count(0) == 2


def test_a_likelier_guess_pays_for_more_slowdown() -> None:
    for chance, least, most in ((0.9, 140, 150), (0.1, 0, 5)):
        overlap = Overlap()
        drawn(overlap, 100, chance=0.9, slowdown=1.15)
        found = drawn(overlap, 150, chance=chance, slowdown=1.15)
        assert least <= sum(map(bool, found)) <= most


def test_what_a_hit_saves() -> None:
    overlap = Overlap()
    drawn(overlap, 100)
    survivals = [0.8, 0.6, 0.5, 0.4]
    passes = [0.0, *[1.0] * 8]
    saved = overlap.savings(survivals, passes, COST, ready=0)
    # The chance that all of the draft and the guess behind it are right; the usual draft has 4.
    assert saved == pytest.approx([0.8 * 0.4, 0.6 * 0.4, 0.5 * 0.4, 0.4 * 0.4, 0.4 * 0.4], rel=0.01)
    short = [0.0, *[0.3] * 8]
    assert overlap.savings(survivals, short, COST, ready=0)[1] == pytest.approx(0.6 * 0.2)
    # What is drawn already is behind the draft, too.
    assert overlap.savings(survivals, short, COST, ready=3)[1] == pytest.approx(0.6 * 0.4, rel=0.01)
    for _ in range(9):
        overlap.learn(1, 3.0, 1.0)
    assert overlap.savings(survivals, passes, COST, ready=0) == [0.0] * 5


def test_one_short_draft_or_one_quick_pass_promises_no_other_savings() -> None:
    overlap, one = Overlap(), ([0.8, 0.6], [0.0, *[1.0] * 4], COST, 0)
    drawn(overlap, 60)
    before = overlap.savings(*one)
    assert before[0] == pytest.approx(0.8 * 0.4)
    overlap.tokens(0.8, 1, 1.0, COST)
    for _ in range(9):
        overlap.learn(3, 0.5, 1.0)
    assert overlap.slowdown == 1.0
    assert overlap.savings(*one) == before
    # A pass that stays alone to be compared with says nothing of the others.
    while overlap.tokens(0.8, 4, 1.0, COST):
        overlap.learn(3, 1.0, 1.0)
    overlap.learn(0, 1.0, 1.0)
    assert overlap.savings(*one) == before


def test_nothing_is_expected_where_nobody_computes_it() -> None:
    """Beside other texts, nothing is drawn ahead although the policy wants it."""
    overlap, one = Overlap(), ([0.8, 0.6], [0.0, *[1.0] * 4], COST, 0)
    assert overlap.savings(*one)[1] > 0
    assert overlap.tokens(0.8, 4, 1.0, COST)
    overlap.learn(0, 1.0, 1.0)
    assert overlap.savings(*one) == [0.0] * 3
    assert overlap.tokens(0.8, 4, 1.0, COST)
    overlap.learn(3, 1.0, 1.0)
    assert overlap.savings(*one)[1] > 0


@pytest.mark.parametrize(
    ("rate", "each", "least"), [(0.9, 0.1, 1.12), (0.9, 0.2, 1.12), (0.7, 0.1, 1.02)]
)
def test_what_it_gains_in_simulated_time(rate: float, each: float, least: float) -> None:
    without, none = speed(rate, each, 1000, ahead=False)
    ahead, ready = speed(rate, each, 1000, ahead=True)
    assert none == 0 < ready
    assert ahead > least * without


@pytest.mark.parametrize("slowdown", [1.1, 1.3, 1.9])
@pytest.mark.parametrize("rate", [0.05, 0.5, 0.9])
def test_a_machine_that_cannot_do_both_loses_next_to_nothing(rate: float, slowdown: float) -> None:
    without, _ = speed(rate, 0.1, 2000, ahead=False)
    ahead, _ = speed(rate, 0.1, 2000, ahead=True, slowdown=slowdown)
    assert ahead > 0.985 * without


@pytest.mark.parametrize("slowdown", [1.0, 1.1])
def test_what_each_model_takes_alone_is_known_all_the_same(slowdown: float) -> None:
    """Passes beside which tokens are drawn are longer, and ready tokens take no time."""
    drafter = SimulatedAhead(0.9, 0.2, Random(1), ahead=True)
    text = SimulatedText(drafter, COSTS["GPU"], slowdown)
    text.write(1500)
    assert drafter.used > 300
    costs, [candidate] = text.policy._passes, text.policy.candidates
    for rows in (1, 4, 6, 8):
        assert costs.seconds(rows) == pytest.approx(COSTS["GPU"][rows], rel=0.03)
    assert candidate.cost.first == pytest.approx(0.2)
    assert candidate.cost.further == pytest.approx(0.2)
    assert candidate.overlap.slowdown == pytest.approx(slowdown, rel=0.01)
