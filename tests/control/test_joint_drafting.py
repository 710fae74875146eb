"""Texts share the decodes of their drafter: what drafts then cost, and what it brings."""

import itertools
import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest
from fakes.machine import FakeClock, OfTraits
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.bench.experiments.simulated_drafter import COSTS, MIXES, User
from localspec.bench.experiments.simulated_users import (
    SimulatedUsers,
    Speeds,
    auto,
    fixed,
    plain,
    simulate_users,
)
from localspec.control.candidate import Candidate
from localspec.control.cost_model import CostModel
from localspec.control.cost_profile import CostProfile, DrafterSeconds
from localspec.control.draft_timer import DraftTimer
from localspec.control.drafter_cost import DrafterCost
from localspec.control.joint_drafting import Drafting, JointDrafting, Parts
from localspec.control.pass_costs import PassCosts
from localspec.control.round import Round
from localspec.control.row_budget import Offer

FLAT = {1: 2.0, 2: 2.2, 4: 2.6}
KNOWN = 9


# What each text pays.


def parts(cost: DrafterCost, *texts: int) -> list[float]:
    return [cost.part(each) for each in texts]


def test_without_a_guess_texts_share_nothing() -> None:
    assert parts(DrafterCost(0.2, 0.1), 1, 2, 50) == pytest.approx([1, 1, 1])


def test_the_first_guess_is_the_form_of_the_targets_passes() -> None:
    profile = CostProfile(FLAT, {"draft-model": DrafterSeconds(0.2, 0.1, 0.0)})
    costs = CostModel.of(profile)
    guessed = parts(costs.drafter("draft-model"), 1, 2, 3, 4)
    assert guessed == pytest.approx([1, 1.1 / 2, 1.2 / 3, 1.3 / 4])
    assert costs.drafter("another").part(2) == 1.0


def test_a_wider_pass_that_is_quicker_does_not_make_a_narrower_one_quick() -> None:
    """The target's passes are padded to it, a drafter's are not."""
    cost = DrafterCost(0.2, 0.1, similar={1: 1.0, 2: 1.8, 3: 2.5, 4: 1.7})
    assert [2 * cost.part(2), 3 * cost.part(3)] == pytest.approx([1.8, 2.5])
    quick, slow = (DrafterCost(similar={1: 1.0, 2: seconds}) for seconds in (0.5, 3.0))
    assert quick.part(2) == 0.5, "not less than a decode for one text"
    assert slow.part(2) == 1.0, "they may be computed one after the other"


def test_decodes_of_several_texts_are_learnt_beside_those_of_one() -> None:
    cost = DrafterCost(0.3, 0.2, similar=FLAT)
    for _ in range(KNOWN):
        cost.learn_further(0.2)
        cost.learn_further(0.15, texts=4)
    assert cost.further == pytest.approx(0.2)
    assert cost.part(4) == pytest.approx(0.75)
    for _ in range(KNOWN):
        cost.learn_first(0.3 * 0.75, backlog=1, texts=4)
    assert cost.first == pytest.approx(0.3), "it pays its part"


def test_where_all_slows_down_a_text_alone_would_slow_down_too() -> None:
    """Beside others all the time, nothing else tells of it."""
    cost = DrafterCost(0.3, 0.2, similar=FLAT)
    for _ in range(KNOWN):
        cost.learn_further(10 * 0.2 * cost.part(4), texts=4)
    assert cost.part(4) == pytest.approx(1.3 / 4)
    assert cost.further == pytest.approx(2.0)


def test_what_is_known_of_no_text_alone_is_estimated_from_several() -> None:
    cost = DrafterCost(similar=FLAT)
    assert cost.part(2) == pytest.approx(0.55)
    cost.learn_further(0.055, texts=2)
    assert cost.further == pytest.approx(0.1)
    assert cost.part(2) == pytest.approx(0.55)


def draw(candidate: Candidate, clock: FakeClock, *tokens: tuple[int, float]) -> None:
    """Time a draft. tokens: for each, how many texts share its decode, and its seconds."""
    share = SimpleNamespace(texts=1)
    timer = DraftTimer(candidate, len(tokens), 1.0, clock, share)  # type: ignore[arg-type]
    for texts, seconds in tokens:
        share.texts = texts
        clock.now += seconds
        timer.tick()


def test_the_timer_of_a_draft_tells_how_many_texts_shared_each_decode() -> None:
    clock, cost = FakeClock(), DrafterCost(0.2, 0.2)
    drafter = OfTraits(clock, computer=lambda: "one")
    candidate = Candidate(drafter, cost)
    for _ in range(2 * KNOWN):
        draw(candidate, clock, (3, 0.1), (3, 0.1), (2, 0.15), (1, 0.2))
    assert parts(cost, 2, 3) == pytest.approx([0.75, 0.5])
    assert (cost.first, cost.further) == pytest.approx((0.2, 0.2))


@pytest.mark.parametrize("computer", [None, lambda: "one"])
def test_what_is_learnt_beside_others_that_share_nothing_is_what_a_token_takes(
    computer: Callable[[], object] | None,
) -> None:
    """Of heads without a model, drafters of one pass, and where others have many rows."""
    clock, cost = FakeClock(), DrafterCost(0.2, 0.2, similar=FLAT)
    drafter = OfTraits(clock, computer=computer, parallel=computer is not None)
    candidate = Candidate(drafter, cost)
    for _ in range(KNOWN):
        draw(candidate, clock, (4, 0.1), (4, 0.1))
    assert cost.further == pytest.approx(0.1)


def test_decodes_with_many_rows_of_others_teach_nothing() -> None:
    clock, cost = FakeClock(), DrafterCost(0.2, 0.2, similar=FLAT)
    drafter = OfTraits(clock, computer=lambda: "one")
    candidate = Candidate(drafter, cost)
    for _ in range(KNOWN):
        draw(candidate, clock, (0, 5.0), (0, 5.0))
    assert (cost.first, cost.further) == (0.2, 0.2)


# What a round of drafts takes.


def joint(drafts: Sequence[tuple[Drafting, int]]) -> JointDrafting:
    added = JointDrafting(Parts())
    for drafting, depth in drafts:
        for place in range(1, depth + 1):
            added.add(drafting, place)
    return added


def test_tokens_at_the_same_place_share_a_decode() -> None:
    cost = DrafterCost(similar=FLAT)
    one, other = (Drafting([0.0, 3.0, 5.0, 7.0], "model", cost) for _ in range(2))
    third = Drafting([0.0, 4.0], "another", cost)
    head, another_head = (Drafting([0.0, 1.0], None, cost) for _ in range(2))
    found = joint([(one, 3), (other, 1), (third, 1), (head, 1), (another_head, 1)])
    # The first tokens of `one` and `other` share a decode, which takes 1.1 times as long as one.
    assert found.seconds == pytest.approx(3.0 * 1.1 + 2.0 + 2.0 + 4.0 + 1.0 + 1.0)


def test_texts_share_the_decodes_of_one_computer_only_and_agree_on_their_cost() -> None:
    parts, cheap, dear = Parts(), DrafterCost(similar=FLAT), DrafterCost(similar={1: 1.0, 2: 1.8})
    one, other = Drafting([0.0, 3.0], "model", cheap), Drafting([0.0, 3.0], "model", dear)
    assert parts.of(one, 2) == parts.of(other, 2) == pytest.approx(0.55)
    assert parts.of(Drafting([0.0, 3.0], "another", dear), 2) == pytest.approx(0.9)
    assert parts.of(Drafting([0.0, 3.0], None, cheap), 2) == 1.0


def test_a_text_pays_its_part_at_each_place() -> None:
    """Not everywhere that of the first tokens: others draft less deep."""
    cost, passes = DrafterCost(similar=FLAT), PassCosts(FLAT)
    drafting = Drafting([0.0, 3.0, 5.0, 7.0], "model", cost)
    other = Offer([0.9], drafting)
    other.bring([0.9], drafting, 1)
    round_ = Round(passes, Offer(), [other])
    [*plans] = round_.plans([0.9] * 3, drafting)
    deepest = max(plans, key=lambda plan: plan.depth)
    assert round_.paid(deepest, drafting) == pytest.approx([0.0, 1.65, 3.65, 5.65])
    alone = Round(passes, Offer(), ())
    [*plans] = alone.plans([0.9] * 3, drafting)
    assert alone.paid(plans[-1], drafting) == pytest.approx(drafting.alone)


draftings = st.lists(
    st.tuples(
        st.floats(0, 2), st.floats(0, 2), st.integers(0, 5), st.sampled_from(["a", "b", None])
    ),
    min_size=1,
    max_size=6,
)


@given(drafts=draftings, order=st.randoms(use_true_random=False))
def test_the_order_of_the_tokens_does_not_matter(
    drafts: list[tuple[float, float, int, str | None]], order: random.Random
) -> None:
    # Each text has learnt by itself; what one has learnt of a number of texts holds for all.
    costs = [DrafterCost(similar={1: 1.0, 8: 1.0 + at}) for at in range(len(drafts))]
    each = [
        (Drafting([0.0, *(first + further * at for at in range(5))], name, cost), depth)
        for (first, further, depth, name), cost in zip(drafts, costs, strict=True)
    ]
    tokens = [(drafting, place) for drafting, depth in each for place in range(1, depth + 1)]
    order.shuffle(tokens)
    parts = Parts()
    found = JointDrafting(parts)
    for drafting, place in tokens:
        found.add(drafting, place)
    expected = sum(drafting.alone[depth] for drafting, depth in each if drafting.computer is None)
    for name, place in itertools.product("ab", range(1, 6)):
        there = [
            drafting for drafting, depth in each if drafting.computer == name and depth >= place
        ]
        alone = sum(drafting.alone[place] - drafting.alone[place - 1] for drafting in there)
        expected += alone * parts.of(there[0], len(there)) if there else 0.0
    assert found.seconds == pytest.approx(expected)


@settings(max_examples=60)
@given(
    rates=st.lists(st.floats(0.01, 0.99), min_size=2, max_size=3),
    seconds=st.tuples(st.floats(0.01, 0.4), st.floats(0.01, 0.3)),
    curve=st.sampled_from(sorted(COSTS)),
    decided=st.integers(-1, 3),
)
def test_choices_take_as_long_as_they_say_and_the_best_are_among_them(
    rates: list[float], seconds: tuple[float, float], curve: str, decided: int
) -> None:
    """Of every text and depth, counted out. decided: the last text's depth, if it has one."""
    first, further = seconds
    passes, deepest, cost = PassCosts(COSTS[curve]), 4, DrafterCost(similar=COSTS[curve])
    drafting = Drafting([0.0, *(first + further * at for at in range(deepest))], "model", cost)
    texts = [[rate**at for at in range(1, deepest + 1)] for rate in rates]
    others = [Offer(each, drafting) for each in texts[1:]]
    if decided >= 0:
        others[-1].bring(texts[-1], drafting, decided)
    round_ = Round(passes, Offer(texts[0], drafting), others)

    def rate_of(depths: Sequence[int]) -> float:
        tokens = sum(1 + sum(text[:depth]) for text, depth in zip(texts, depths, strict=True))
        drafts = joint([(drafting, depth) for depth in depths])
        return tokens / (passes.seconds(sum(1 + depth for depth in depths)) + drafts.seconds)

    every = [
        depths
        for depths in itertools.product(range(deepest + 1), repeat=len(texts))
        if decided < 0 or depths[-1] == decided
    ]
    promised = [
        (1 + sum(texts[0][: plan.depth]) + plan.tokens) / plan.seconds
        for plan in round_.plans(texts[0], drafting)
    ]
    possible = [rate_of(depths) for depths in every]
    for each in promised:
        assert min(abs(each / other - 1) for other in possible) < 1e-9
    # Which tokens are best depends on which share decodes, so a few choices are missed.
    assert max(*promised, 1 / round_.plain) >= 0.85 * max(possible)


# Users.


def test_all_draft_where_it_pays_only_together() -> None:
    """One draft alone takes longer than it saves, as all wait for it."""
    costs, mix = COSTS["GPU"], MIXES["0.9"]
    before, after = (simulate_users(costs, mix, 8, make, 600) for make in (plain, auto))
    best = simulate_users(costs, mix, 8, fixed(4), 600)
    assert best.total > 1.3 * before.total
    assert after.total >= 0.97 * best.total


@pytest.mark.parametrize("mix", ["0.9", "mixed"])
@pytest.mark.parametrize("costs", COSTS)
def test_drafters_that_share_nothing_are_found_out(costs: str, mix: str) -> None:
    users = [MIXES[mix][number % len(MIXES[mix])] for number in range(4)]
    before, after = (
        Speeds.of(SimulatedUsers(COSTS[costs], users, make, shared_drafting=False).run(600))
        for make in (plain, auto)
    )
    assert after.total >= 0.96 * before.total
    assert min(a / b for a, b in zip(after.each, before.each, strict=True)) >= 0.95


@pytest.mark.parametrize(
    ("costs", "rate", "users", "least"),
    [("GPU", 0.7, 8, 0.97), ("F16 B", 0.7, 4, 0.97), ("GPU", 0.9, 4, 1.3)],
)
def test_prompts_are_read_where_the_texts_save_more_together_than_they_read(
    costs: str, rate: float, users: int, least: float
) -> None:
    """Not where each alone would have to read less than all together save."""
    before, after = (
        simulate_users(COSTS[costs], [User(rate, prompt=100)], users, make, 128)
        for make in (plain, auto)
    )
    assert after.total >= least * before.total
