"""The rows of several texts as one budget: at one user as ever, at many what pays for all."""

import itertools
import random
from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Any

import pytest
from fakes.machine import CURVES, MARGIN_OF, CheapDrafter, CostlyDrafter, FakeClock, Machine
from hypothesis import example, given, settings
from hypothesis import strategies as st

from localspec.bench.experiments.simulated_drafter import COSTS, MIXES, SimulatedDrafter, User
from localspec.bench.experiments.simulated_users import (
    DEPTHS,
    MakePolicy,
    SimulatedUsers,
    Speeds,
    UserWriter,
    auto,
    fixed,
    plain,
    simulate_users,
)
from localspec.control.acceptance import AcceptancePrior, AcceptanceRates, Tally
from localspec.control.adaptive import AdaptivePolicy
from localspec.control.base_costs import WIDEST_DECODE
from localspec.control.cost_model import CostModel
from localspec.control.fixed_depth import FixedDepth
from localspec.control.joint_drafting import Drafting
from localspec.control.loss_budget import LossBudget
from localspec.control.pass_costs import PassCosts
from localspec.control.policies import Policies
from localspec.control.round import Round
from localspec.control.row_budget import DELAY, OVERDRAFT, Offer, RowBudget, RowShare
from localspec.control.step_seconds import StepSeconds
from localspec.generation_config import GenerationConfig
from localspec.speculation.policy import Policy, Step


def offered(*survivals: float, tokens: float = 1.0, reading: bool = False) -> Offer:
    drafting = Drafting((0.0,) * (1 + len(survivals)))
    return Offer(survivals, drafting, tokens=tokens, reading=reading)


# One text.


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("chance", [0.3, 0.6, 0.9])
def test_a_text_without_company_is_decided_as_ever(curve: str, chance: float) -> None:
    """Also in a server with other slots, in which nothing is written."""

    def decisions(alone: bool) -> list[tuple[object, ...]]:
        clock, rng, budget = FakeClock(), random.Random(1), RowBudget()
        budget.new_share(lambda: False).offer = offered(0.9, 0.9, 0.9)
        other = budget.new_share()
        other.begin("another cache")
        options = {} if alone else {"rows": budget.new_share()}
        machine = Machine(clock, curve)
        policy = machine.policy(
            CheapDrafter(lambda: 6 if rng.random() < 0.3 else 0, lambda: rng.random() < chance),
            CostlyDrafter(
                clock, lambda: rng.random() < chance, margin=lambda right: MARGIN_OF[right]
            ),
            **options,
        )
        return [
            (*step.drafted, step.verified, len(step.tokens), now, policy.loss_budget.available(1.0))
            for step, now in machine.steps(policy, 1500)
        ]

    assert decisions(alone=True) == decisions(alone=False)


@given(
    survivals=st.lists(st.floats(0, 1), min_size=1, max_size=8),
    curve=st.sampled_from(sorted(COSTS)),
)
def test_one_text_takes_the_depth_with_the_most_tokens_per_second(
    survivals: list[float], curve: str
) -> None:
    survivals = sorted(survivals, reverse=True)
    passes = PassCosts(COSTS[curve])
    alone = Round(passes, Offer(), ())
    best = max(
        alone.plans(survivals, Drafting([0.0] * 9)),
        key=lambda plan: (1 + sum(survivals[: plan.depth])) / plan.seconds,
    )
    depth = max(
        range(1, len(survivals) + 1),
        key=lambda depth: (1 + sum(survivals[:depth])) / passes.seconds(1 + depth),
    )
    assert best.depth == depth
    assert alone.plain == alone.share == passes.seconds(1)


# Several texts.


def chances(rate: float, depth: int) -> list[float]:
    return [rate**at for at in range(1, depth + 1)]


@settings(max_examples=60)
@given(
    rates=st.lists(st.floats(0.01, 0.99), min_size=2, max_size=3),
    curve=st.sampled_from(sorted(COSTS)),
)
def test_the_best_choice_is_the_best_of_all_depths(rates: list[float], curve: str) -> None:
    """Of every text, counted out."""
    passes, deepest = PassCosts(COSTS[curve]), 5
    texts = [chances(rate, deepest) for rate in rates]
    others = [offered(*each) for each in texts[1:]]
    round_ = Round(passes, Offer(), others)

    def rate_of(depths: Sequence[int]) -> float:
        tokens = sum(1 + sum(text[:depth]) for text, depth in zip(texts, depths, strict=True))
        return tokens / passes.seconds(sum(1 + depth for depth in depths))

    found = max(
        (1 + sum(texts[0][: plan.depth]) + plan.tokens) / plan.seconds
        for plan in round_.plans(texts[0], Drafting([0.0] * (deepest + 1)))
    )
    every = list(itertools.product(range(deepest + 1), repeat=len(texts)))
    assert max(found, 1 / round_.plain) == pytest.approx(max(map(rate_of, every)))
    without = max(rate_of(depths) for depths in every if not depths[0])
    assert 1 / round_.plain == pytest.approx(without)


def test_texts_that_had_less_come_first() -> None:
    """Of two that are alike, the one with fewer tokens lately drafts deeper."""
    survivals = chances(0.6, 4)

    def depth(own: float, other: float) -> int:
        round_ = Round(
            PassCosts({1: 1, 8: 2.0}), offered(tokens=own), [offered(*survivals, tokens=other)]
        )
        best = max(
            round_.plans(survivals, Drafting([0.0] * 5)),
            key=lambda plan: (1 + sum(survivals[: plan.depth]) + plan.tokens) / plan.seconds,
        )
        return best.depth

    assert depth(1.0, 2.0) > depth(2.0, 1.0)


@pytest.mark.parametrize("readers", [1, 3])
@pytest.mark.parametrize("costs", COSTS)
def test_while_others_read_prompts_a_draft_must_save_more_than_all_could_write(
    costs: str, readers: int
) -> None:
    """Their reading takes its time whatever is drafted, but they wait for the draft."""
    passes, survivals = PassCosts(COSTS[costs]), chances(0.8, 8)
    drafting = Drafting([0.1 * depth for depth in range(9)])
    none = Round(passes, Offer(), ())
    reads = Round(passes, Offer(), [offered(reading=True)] * readers)
    assert reads.texts == 1 and reads.share == none.share
    # Seconds per token once all are written.
    worth = passes.seconds(1 + readers) / (1 + readers)
    assert reads.plain == pytest.approx(worth)
    saved = [
        sum(survivals[:depth]) * worth - passes.seconds(1 + depth) - drafting.alone[depth]
        for depth in range(9)
    ]
    plan, rate = reads.best(survivals, drafting)
    assert plan
    assert (rate * worth > 1) == (max(saved) > saved[0])


def test_only_texts_of_one_cache_that_are_written_count() -> None:
    budget = RowBudget()
    here, beside, elsewhere, ended = (budget.new_share() for _ in range(4))
    elsewhere.cache = "another"
    ended.is_written = lambda: False
    assert here.others == [beside.offer]
    budget.remove(beside)
    assert not here.others


# All together, in simulated time.


def users_of(mix: str, users: int) -> list[User]:
    return [MIXES[mix][number % len(MIXES[mix])] for number in range(users)]


def gains(
    costs: str, mix: str, users: int, tokens: int = 1000, *, apart: bool = False
) -> tuple[Speeds, Speeds]:
    """Plain decoding, and `auto`."""
    return tuple(  # type: ignore[return-value]
        simulate_users(COSTS[costs], MIXES[mix], users, make, tokens, unequal_apart=apart)
        for make in (plain, auto)
    )


@pytest.mark.parametrize("users", [1, 2, 4, 8])
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("costs", ["Q4_0 B", "F16 B"])
def test_auto_is_never_much_slower_than_plain(costs: str, mix: str, users: int) -> None:
    before, after = gains(costs, mix, users)
    assert after.total >= 0.97 * before.total


@pytest.mark.parametrize("users", [2, 4, 8])
@pytest.mark.parametrize("costs", ["Q4_0 B", "F16 B"])
def test_auto_is_about_as_fast_as_the_best_depth_for_all(costs: str, users: int) -> None:
    after = simulate_users(COSTS[costs], MIXES["0.9"], users, auto, 800).total
    best = max(
        simulate_users(COSTS[costs], MIXES["0.9"], users, fixed(depth), 300).total
        for depth in DEPTHS
    )
    # Some of it is given up so that no text is delayed by the drafts of others.
    assert after >= 0.88 * best


@pytest.mark.parametrize("rate", [0.4, 0.05])
@pytest.mark.parametrize("users", [4, 8])
@pytest.mark.parametrize("costs", ["Q4_0 A", "Q4_0 B", "F16 A", "GPU"])
def test_users_do_not_all_pay_for_learning_the_same(costs: str, users: int, rate: float) -> None:
    """Two short texts of each, the first ones with this drafter, which hardly ever pays."""

    def speed(make: MakePolicy) -> float:
        both = SimulatedUsers(COSTS[costs], [User(rate)] * users, make)
        for tokens in (24, 48):
            both.run(tokens)
            for writer in both.writers:
                writer.policy.begin()
        return sum(each.tokens for each in both.writers) / both.seconds

    assert speed(auto) >= 0.93 * speed(plain)


def test_texts_share_what_reading_prompts_to_learn_may_cost() -> None:
    """It is a share of the time of all: four texts may together read what one may alone."""

    def saved_up(texts: int) -> float:
        clock, budget = FakeClock(), RowBudget()
        own, *others = [budget.new_share() for _ in range(texts)]
        for share in others:
            share.begin(None)
        policy = Machine(clock).policy(CostlyDrafter(clock, lambda: True, backlog=9000), rows=own)
        [*_] = Machine(clock).steps(policy, 40)
        return policy.candidates[0]._exploration_budget

    assert saved_up(4) == pytest.approx(saved_up(1) / 4)


def test_texts_without_drafts_find_out_a_wrong_padding() -> None:
    """All wait for the padding of a shared decode, also where nobody drafts."""
    costs = COSTS["Q4_0 A"]

    def make(_drafter: object, costs: CostModel, rows: RowShare) -> Policy:
        return FixedDepth((), 0, rows=rows, passes=costs.passes)

    def seconds(believed: dict[int, float] | None) -> float:
        users = SimulatedUsers(costs, [User(0.5)] * 4, make, believed=believed)
        return users.run(100).seconds

    # Four rows look dearer than eight, which take 1.8 times as long.
    assert seconds({**costs, 4: 3.1}) <= 1.12 * seconds(None)


def test_what_others_have_seen_is_expected_at_first() -> None:
    budget = RowBudget()
    one, other = budget.new_share(), budget.new_share(lambda: beside)
    other.seen["suffix"] = Tally(2, 16)
    beside, rates = True, AcceptanceRates(0.7)
    rates.expect(one.seen_by_others("suffix"))
    assert rates.chances(2) == pytest.approx([4.8 / 20] * 2)
    for _ in range(200):
        rates.learn(0, True)
    assert rates.chances(1)[0] > 0.99, "its own text counts for more"
    beside = False
    assert one.seen_by_others("suffix").tried == 0
    assert one.seen_by_others("model").tried == 0


def fairness(costs: str, mix: str, users: int, tokens: int) -> float:
    """The slowest over the fastest of users whose drafts are right at the same places."""
    same = [MIXES[mix][0]] * users
    speeds = Speeds.of(SimulatedUsers(COSTS[costs], same, auto, equal_work=True).run(tokens))
    return min(speeds.each) / max(speeds.each)


@pytest.mark.parametrize("users", [2, 4, 8])
@pytest.mark.parametrize("costs", ["Q4_0 A", "Q4_0 B", "F16 B"])
def test_users_of_equal_work_are_served_alike(costs: str, users: int) -> None:
    assert fairness(costs, "0.9", users, 500) >= 0.85
    assert fairness(costs, "copies", users, 800) >= 0.8


def slowest(costs: str, mix: str, users: int, tokens: int) -> float:
    """The speed of the user that gains least, by that of plain decoding."""
    before, after = gains(costs, mix, users, tokens)
    return min(new / old for new, old in zip(after.each, before.each, strict=True))


@pytest.mark.parametrize("users", [2, 4, 8])
@pytest.mark.parametrize("mix", ["mixed", "copies", "0.9"])
@pytest.mark.parametrize("costs", COSTS)
def test_nobody_pays_for_the_drafts_of_others(costs: str, mix: str, users: int) -> None:
    """Also not in a short text, whatever the drafts of the others bring them."""
    assert slowest(costs, mix, users, 48) >= 0.85
    assert slowest(costs, mix, users, 600) >= 0.96


@pytest.mark.parametrize("costs", COSTS)
def test_a_text_without_drafts_pays_little_for_those_of_others(costs: str) -> None:
    """It has no adaptive policy, but the others know how long it has waited."""

    def one_drafts(drafter: SimulatedDrafter, costs: CostModel, rows: RowShare) -> Policy:
        if next(drafts):
            return auto(drafter, costs, rows)
        return FixedDepth((), 0, rows=rows, passes=costs.passes)

    speeds = list[Speeds]()
    for pattern in ([False, False], [True, False]):
        drafts = iter(pattern)
        speeds.append(simulate_users(COSTS[costs], [User(0.9)], 2, one_drafts, 600))
    before, after = speeds
    assert after.each[1] >= 0.96 * before.each[1]


def test_a_text_of_depth_0_tells_how_long_it_may_wait_and_is_padded_beside_others() -> None:
    passes, budget = PassCosts(COSTS["Q4_0 A"]), RowBudget()
    own, _ = budget.new_share(), budget.new_share(lambda: has_company)
    policies = Policies([], CostModel(passes, {}), lambda *_: AcceptancePrior())
    policy = policies.policy(GenerationConfig(depth=0), 0.0, deepest=31, rows=own)
    has_company = False
    policy.learn(Step([], 0, 1, [1], 1.0, 0.0))
    assert own.offer.slack == float("inf") and policy.padded(3) == 3
    has_company = True
    policy.learn(Step([], 0, 1, [1], 1.0, 0.0, others=(7,)))
    assert own.offer.slack < passes.seconds(2)
    assert policy.padded(3) == passes.padded(3) == 4


def test_a_round_is_borne_by_what_each_text_gains_in_it() -> None:
    passes = PassCosts(COSTS["F16 B"])
    other = offered(0.8, 0.5)
    other.slack, other.host = 0.25, 0.01
    plain = passes.seconds(2)
    for plan in Round(passes, Offer(), [other]).plans([0.9, 0.7, 0.2], Drafting([0.0] * 4)):
        [rows] = plan.others
        gained = sum((0.8, 0.5)[: rows - 1])
        assert plan.most == pytest.approx((plain + 0.01) * (1 + gained) + 0.25)


def test_the_first_text_that_drafts_plans_for_those_that_follow() -> None:
    passes, drafting = PassCosts(COSTS["GPU"]), Drafting([0.0, 0.1, 0.2])
    offers = [offered(0.9, 0.8), offered(0.7, 0.1), offered()]
    decided = Offer([0.0], Drafting([0.0] * 2), depth=1, decided=True)
    first = Round(passes, Offer(), [*offers, decided])
    plan, _ = first.best([0.9, 0.8], drafting)
    assert plan and plan.depths[:3] == (2, 1, 0)
    first.plan_others(plan)
    assert [each.depth for each in offers] == [2, 1, 0]
    assert all(each.planned for each in offers) and not decided.planned
    # The next one chooses a depth of its own, and no other choice is compared.
    own, *others = offers
    others.append(Offer((0.9, 0.8), drafting, depth=plan.depth, decided=True))
    second = Round(passes, own, [*others, decided])
    plans = list(second.plans([0.9, 0.8], drafting))
    assert [each.depth for each in plans] == [1, 2]
    assert {each.others for each in plans} == {(2 + 1 + 1 + plan.depth + 2,)}
    # Whether to read a prompt is asked of all.
    assert len(list(second.jointly().plans([0.9, 0.8], drafting))) > 2
    own.bring((), drafting, 0)
    assert not own.planned


def test_nothing_is_planned_while_a_drafter_has_a_prompt_to_read() -> None:
    """Its text decides by itself whether it reads."""
    other = Offer((0.9,), Drafting([0.0, 0.1], unread=1.0))
    round_ = Round(PassCosts(COSTS["GPU"]), Offer(), [other])
    plan, _ = round_.best([0.9], Drafting([0.0, 0.1]))
    assert plan
    round_.plan_others(plan)
    assert not other.planned


@given(
    chances_=st.lists(st.floats(0, 1), min_size=1, max_size=12),
    others=st.lists(st.lists(st.floats(0, 1), max_size=4), max_size=3),
    costs=st.sampled_from(sorted(COSTS)),
    late=st.floats(0, 0.3),
)
def test_no_depth_that_would_be_better_is_left_out(
    chances_: list[float], others: list[list[float]], costs: str, late: float
) -> None:
    """The search ends where no deeper draft can be better."""
    survivals = list(accumulate(chances_, mul))
    drafting = Drafting([0.1 * depth for depth in range(1 + len(survivals))])
    offers = [offered(*accumulate(each, mul)) for each in others]
    for offer in offers:
        offer.depth = len(offer.survivals)
    round_ = Round(PassCosts(COSTS[costs]), Offer(planned=True), offers)
    expected = [1.0, *(1.0 + total for total in accumulate(survivals))]
    rates = [
        (plan.tokens + expected[plan.depth])
        / (plan.seconds + min(late * expected[plan.depth], 0.5))
        for plan in round_.plans(survivals, drafting)
    ]
    assert round_.best(survivals, drafting, late, 0.5)[1] == pytest.approx(max(rates))


def test_what_others_have_decided_is_certain_for_those_that_follow() -> None:
    """Not what would be best for all: it is drafted already."""
    passes = PassCosts(COSTS["F16 B"])
    decided = offered(0.9, 0.8, 0.1)
    decided.bring(decided.survivals, decided.drafting, 3)
    open_ = offered(0.9, 0.8, 0.1)

    def rows() -> set[int]:
        plans = Round(passes, Offer(), [decided, open_]).plans([0.9, 0.5], Drafting([0.0] * 3))
        return {plan.others[0] for plan in plans}

    assert rows() == {4 + 1, 4 + 2, 4 + 3, 4 + 4}
    decided.decided = False
    assert {1 + 1, 1 + 2, 2 + 2} < rows()


def test_more_rows_than_a_decode_has_are_no_choice() -> None:
    passes = PassCosts({1: 1.0, 32: 1.01})
    others = [offered() for _ in range(2)]
    for each in others:
        each.bring([1.0] * 30, Drafting([0.0] * 31), 20)
    round_ = Round(passes, Offer(), others)
    most = WIDEST_DECODE - 2 * 21
    plans = list(round_.plans([1.0] * 30, Drafting([0.0] * 31)))
    assert {plan.depth for plan in plans if plan.seconds < float("inf")} == {*range(1, most)}


def test_texts_that_find_no_round_by_themselves_tell_what_they_could_bring() -> None:
    """A round that all bear is found only so: none of them bears one in which it drafts alone."""
    before, after = gains("Q4_0 B", "0.9", 8, 400)
    assert after.total >= 1.2 * before.total


def test_a_text_bears_its_own_draft_only_as_long_as_those_of_others() -> None:
    passes = PassCosts(COSTS["F16 B"])
    for own, other in ((0.1, 9.0), (9.0, 0.1)):
        others = [Offer(slack=other)]
        plans = Round(passes, Offer(slack=own), others).plans([0.5] * 3, Drafting([0.0] * 4))
        least = 1 + (0.5 if own < other else 0.0)
        assert min(plan.most for plan in plans) == pytest.approx(passes.seconds(2) * least + 0.1)


def test_a_text_that_is_behind_goes_on_while_it_gains() -> None:
    """But not where it is far behind."""
    passes = PassCosts(COSTS["F16 B"])
    plain = passes.seconds(2)

    def most(rounds_behind: float) -> float:
        own = Offer(slack=-rounds_behind * plain)
        [plan, *_] = Round(passes, own, [Offer()]).plans([0.9], Drafting([0.0] * 2))
        return plan.most / plain

    assert most(0.01) == pytest.approx(1 + 0.9 - 0.01)
    assert most(1.0) == most(5.9) == pytest.approx(1 + 0.9 * 0.9)
    assert most(6.1) == pytest.approx(1 + 0.9 - 6.1)


def test_a_text_that_may_gain_bears_what_it_costs_to_stop() -> None:
    """On a GPU, where the rows of a run of drafts are those of the decode before."""
    passes = PassCosts(COSTS["GPU"], change=2.0)
    passes.share(2)

    def most(*survivals: float) -> float:
        """The longest round that the other text bears, if it drafts nothing, or one token."""
        other = offered(*survivals)
        other.slack = 0.0
        plans = Round(passes, Offer(), [other]).plans([0.9], Drafting([0.0] * 2))
        return max(plan.most for plan in plans)

    before = most(), most(0.5)
    passes.learn(4, 1.0)
    assert most() == before[0] and most(0.5) == pytest.approx(before[1] + 2.0)
    passes.learn(2, 1.0)
    assert most(0.5) == before[1]


def test_plain_steps_take_as_long_outside_the_models_as_drafts() -> None:
    """Passes were learnt with that time of one text; a round has it of all."""
    passes, host, texts = PassCosts(COSTS["GPU"]), 0.3, 8
    decode, plain = passes.seconds(9), passes.of_plain(8)
    step = Step([1], 1, 2, [1, 1], decode * 2 / 9 + host, 0.0, 0, (1,) * 7, decode, decode * 2 / 9)
    known = StepSeconds(passes, texts, host)
    assert known.plain(step) == pytest.approx(plain / texts + host * (1 - 1 / texts))
    assert known.own_seconds(step) == StepSeconds(passes, texts).own_seconds(step)
    alone = Step([], 0, 1, [1], 1.0 + host, 0.0, 0, (), 1.0, 1.0)
    assert known.plain(alone) == passes.seconds(1)

    budget = RowBudget()
    shares = [budget.new_share() for _ in range(texts)]
    for share in shares:
        share.begin(None)
        share.offer.host = host
    shares[0].learn(step, passes)
    waited = decode + 7 * host - 2 * (1 + LossBudget.ALLOWANCE) * (plain + 7 * host)
    assert shares[0].lead.available(0) == pytest.approx(-waited)
    assert shares[0].offer.slack == pytest.approx(DELAY * plain - waited)


def test_a_draft_does_not_grow_beside_others() -> None:
    """Its drafter may be as sure as it likes: the rows and the seconds are those of all."""
    users = SimulatedUsers(COSTS["GPU"], [User(0.99)] * 2, auto)
    for writer in users.writers:
        writer.drafter.draw = lambda: (True, MARGIN_OF[True])  # type: ignore[method-assign]
    for _ in range(60):
        users.step()
        for writer in users.writers:
            assert len(writer.draft) <= writer.policy.rows.offer.depth  # type: ignore[attr-defined]


def test_a_text_bears_a_round_for_a_few_tokens_that_it_may_gain() -> None:
    passes = PassCosts(COSTS["F16 B"])
    other = offered(*[1.0] * 20)
    other.slack = 0.0
    plans = Round(passes, Offer(), [other]).plans([0.99] * 20, Drafting([0.0] * 21))
    gained = {plan.most / passes.seconds(2) - 1 for plan in plans}
    assert max(gained) == pytest.approx(3.0)


def test_without_its_own_draft_a_text_expects_only_rounds_that_all_bear() -> None:
    passes = PassCosts(COSTS["F16 B"])

    def plain(own_slack: float, other_slack: float) -> float:
        own, other = Offer(slack=own_slack), offered(0.9, 0.8, 0.7)
        other.slack = other_slack
        return Round(passes, own, [other]).plain

    nobody_drafts = passes.seconds(2) / 2
    assert plain(1.0, 0.0) < nobody_drafts
    assert plain(0.0, 0.0) == plain(1.0, -20.0) == nobody_drafts


def test_a_text_that_waits_for_others_loses_its_lead() -> None:
    """A round with drafts costs it time; a plain one hardly changes anything."""
    passes, budget = PassCosts(COSTS["F16 B"]), RowBudget()
    own, other = budget.new_share(), budget.new_share()

    def lead_after(width: int, tokens: int, others: int, drafting: float = 0.0) -> float:
        own.begin(None)
        other.begin(None)
        own.learn(Step([], width - 1, width, [1] * tokens, 1.0, 0.0, others=(others,)), passes)
        drafted = [5] * bool(drafting)
        other.learn(Step(drafted, others - 1, others, [1], 1.0, drafting, others=(width,)), passes)
        return own.offer.slack / passes.seconds(2)

    assert lead_after(1, 1, 1) == pytest.approx(DELAY + LossBudget.ALLOWANCE)
    waited = passes.seconds(8) / passes.seconds(2)
    assert lead_after(1, 1, 7) == pytest.approx(DELAY + 1.02 - waited)
    gained = 3 * (1 + LossBudget.ALLOWANCE)
    assert lead_after(3, 3, 1) == pytest.approx(
        DELAY + gained - passes.seconds(4) / passes.seconds(2)
    )
    assert lead_after(1, 1, 2, 0.1) == pytest.approx(
        DELAY + 1.02 - (passes.seconds(3) + 0.1) / passes.seconds(2)
    )
    assert lead_after(1, 1, 100) == float("inf"), "a part of a prompt is nobody's draft"


def test_who_reads_a_prompt_is_not_charged_for_the_drafts_meanwhile() -> None:
    """It takes no step with the others: its passes are too wide."""
    passes, budget = PassCosts(COSTS["F16 B"]), RowBudget()
    shares = [budget.new_share() for _ in range(3)]
    for share in shares:
        share.begin(None)
    *writers, reader = shares
    reader.offer.reading = True
    for _ in range(20):
        for share in writers:
            share.learn(Step([], 3, 4, [1], 1.0, 0.5, others=(4,), share=0.5), passes)
    assert writers[0].offer.slack < -5 * passes.seconds(2)
    reader.offer.bring((), Drafting(), 0)
    reader.learn(Step([], 0, 1, [1], 1.0, 0.0, others=(1, 1), share=1.0), passes)
    assert reader.offer.slack == pytest.approx(passes.seconds(3) * (DELAY + 0.02))


def test_reading_a_prompt_to_draft_is_charged_to_nobody_and_hidden_rows_to_all() -> None:
    passes, budget = PassCosts(COSTS["F16 B"]), RowBudget()
    shares = [budget.new_share() for _ in range(2)]

    def slacks(prompt: float, hidden: float) -> list[float]:
        for share in shares:
            share.begin(None)
            share.offer.bring((), Drafting(), 0)
        reading, seconds = {"eagle3": hidden}, 13.0 + hidden
        step = Step([], 0, 1, [1], seconds, 12.0, others=(1,), share=1.0, reading=reading)
        shares[0].learn(step, passes, prompt)
        shares[1].learn(Step([], 0, 1, [1], 1.0, 0.0, others=(1,), share=1.0), passes)
        return [share.offer.slack / passes.seconds(2) for share in shares]

    assert slacks(12.5, 0.0) == pytest.approx([DELAY + 0.02] * 2)
    assert slacks(12.0, 0.5) == pytest.approx([DELAY + 0.02 - 0.5 / passes.seconds(2)] * 2)


def test_what_drafts_of_a_fixed_depth_cost_is_forgiven_some_day() -> None:
    passes, budget = PassCosts(COSTS["F16 B"]), RowBudget()
    shares = [budget.new_share() for _ in range(2)]
    for share in shares:
        share.begin(None)
        share.offer.bring((), Drafting(), 0)
    for _ in range(300):
        shares[0].learn(Step([], 8, 9, [1], 1.0, 1.0, others=(1,)), passes)
        shares[1].learn(Step([], 0, 1, [1], 1.0, 0.0, others=(9,)), passes)
    assert shares[1].offer.slack == pytest.approx(-9 * passes.seconds(2))


def test_others_know_the_depth_of_a_fixed_draft() -> None:
    budget, passes = RowBudget(), PassCosts(COSTS["F16 B"])
    drafter = CostlyDrafter(FakeClock(), lambda: True)
    policy = FixedDepth([drafter], 3, rows=budget.new_share(), passes=passes)
    policy.begin()
    [offer] = budget.new_share().others
    assert (offer.depth, offer.decided) == (3, True)
    policy.learn(Step([1] * 3, 3, 4, [1], 1.0, 0.0, others=(1,)))
    assert (offer.depth, offer.decided) == (3, True), "also the next one"
    policy.lose(drafter, for_good=False)
    policy.begin()
    assert budget.new_share().others[0].depth == 0


@pytest.mark.parametrize("apart", [False, True])
def test_plans_keep_to_what_is_decided(apart: bool) -> None:
    passes = PassCosts(COSTS["F16 B"], unequal_apart=apart)
    decided = offered(0.9, 0.9, 0.9)
    decided.bring(decided.survivals, decided.drafting, 0)
    for plan in Round(passes, Offer(), [decided]).plans([0.9] * 3, Drafting([0.0] * 4)):
        assert plan.others == (1,)


def test_what_others_drafted_last_leaves_room_until_they_decide() -> None:
    """Else a text that once offered nothing would find no room for ever."""
    passes = PassCosts(COSTS["F16 B"])
    others = [
        Offer(depth=31, survivals=[0.9] * 31, drafting=Drafting([0.0] * 32)) for _ in range(2)
    ]
    assert max(Round(passes, Offer(), others).table()) < float("inf")
    for each in others:
        each.decided = True
    assert Round(passes, Offer(), others).table()[2] == float("inf")


def test_a_trial_beside_others_is_of_one_token_and_they_know_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decide, depths = UserWriter.decide, list[tuple[int, int]]()

    def watched(writer: UserWriter) -> None:
        decide(writer)
        offer = writer.policy.rows.offer  # type: ignore[attr-defined]
        if offer.trial:
            depths.append((offer.depth, len(writer.draft)))

    monkeypatch.setattr(UserWriter, "decide", watched)
    SimulatedUsers(COSTS["F16 B"], [User(0.5)] * 8, auto).run(150)
    assert len(depths) > 3 and set(depths) == {(1, 1)}


def test_texts_that_are_alike_fill_a_decode_alike() -> None:
    """Copies that are always right, where rows cost next to nothing: 63 of them are not enough."""
    users = SimulatedUsers({1: 1.0, 32: 1.01}, [User(0.99, copies=True)] * 3, auto)
    for writer in users.writers:
        writer.drafter.draw = lambda: (True, MARGIN_OF[True])  # type: ignore[method-assign]
        writer.drafter._found = 10**9  # a copy without an end
    for _ in range(60):
        users.step()
    tokens = [writer.tokens for writer in users.writers]
    # A few of the 60 decodes are plain ones, to see what these take.
    assert sum(tokens) > 55 * WIDEST_DECODE and min(tokens) >= 0.9 * max(tokens)


@pytest.mark.parametrize("mix", ["0.9", "mixed", "useless"])
def test_running_states_are_never_much_slower_than_plain(mix: str) -> None:
    """Passes of unequal rows are computed one after the other."""
    before, after = gains("F16 B", mix, 4, 600, apart=True)
    assert after.total >= 0.96 * before.total


# Bound on the loss.


def plain_round_of(users: SimulatedUsers) -> float:
    """Seconds of a round without drafts, and with what all do outside the models."""
    count = len(users.writers)
    return PassCosts(users.costs).seconds(count) + count * users.host


def worst_delay(users: SimulatedUsers, rounds: int) -> float:
    """The most plain rounds that a text was behind one of plain decoding, and the allowance."""
    plain_round = plain_round_of(users)
    worst = 0.0
    for _ in range(rounds):
        users.step()
        for writer in users.writers:
            allowed = (1 + LossBudget.ALLOWANCE) * writer.tokens * plain_round
            worst = max(worst, users.seconds - allowed)
    return worst / plain_round


def excess(users: SimulatedUsers, rounds: int) -> float:
    """The most seconds beyond those of plain decoding and the allowance, over all stretches."""
    count, plain_round = len(users.writers), plain_round_of(users)
    balance = lowest = worst = 0.0
    for _ in range(rounds):
        before, tokens = users.seconds, sum(each.tokens for each in users.writers)
        users.step()
        done = sum(each.tokens for each in users.writers) - tokens
        allowed = (1 + LossBudget.ALLOWANCE) * done * plain_round / count
        balance += users.seconds - before - allowed
        worst, lowest = max(worst, balance - lowest), min(lowest, balance)
    return worst / plain_round


adversary: dict[str, st.SearchStrategy[Any]] = {
    "costs": st.sampled_from(sorted(COSTS)),
    "patterns": st.lists(st.lists(st.booleans(), min_size=1, max_size=40), min_size=2, max_size=6),
    "lies": st.booleans(),
    "copies": st.booleans(),
    "host": st.sampled_from([0.0, 0.05, 0.3]),
}
against_an_adversary = given(**adversary)


def users_of_an_adversary(
    costs: str,
    patterns: list[list[bool]],
    lies: bool,
    copies: bool,
    host: float,
    *,
    shared: bool = True,
) -> SimulatedUsers:
    """patterns: which tokens of each text are right. lies: whether sure drafters are wrong.

    host: as in SimulatedUsers; the texts know that of a pass. shared: as
    SimulatedUsers.shared_drafting, which they expect.
    """
    each = [User(0.5, copies)] * len(patterns)
    believed = {rows: seconds + host for rows, seconds in COSTS[costs].items()}
    users = SimulatedUsers(
        COSTS[costs], each, auto, believed=believed, shared_drafting=shared, host=host
    )
    for writer, pattern in zip(users.writers, patterns, strict=True):
        right = itertools.cycle(pattern)
        writer.drafter.draw = lambda right=right: (  # type: ignore[method-assign]
            (answer := next(right)),
            MARGIN_OF[answer != lies],
        )
    return users


@pytest.mark.slow
@settings(max_examples=30)
@example(("F16 A", [[False, True, True, True], [True], [True]], False, False, 0.3), True)
@example(("Q4_0 A", [[False] * 2 + [True] * 14, [True], [True]], True, False, 0.0), True)
@example(("GPU", [[False], [True], [True]], False, False, 0.0), False)
@given(st.tuples(*adversary.values()), st.booleans())
def test_no_text_is_ever_delayed_for_long(like: tuple[Any, ...], shared: bool) -> None:
    """The same adversary, and whoever writes beside it. Others always write what is right."""
    users = users_of_an_adversary(*like, shared=shared)
    assert worst_delay(users, 300) <= 10


@pytest.mark.slow
@settings(max_examples=20)
@example("F16 A", [[False, True, True, True], [True], [True]], False, False, 0.3)
@against_an_adversary
def test_each_text_knows_how_far_it_is_behind(
    costs: str, patterns: list[list[bool]], lies: bool, copies: bool, host: float
) -> None:
    """To the second, in every round: nothing that it waits for goes uncounted."""
    users = users_of_an_adversary(costs, patterns, lies, copies, host)
    plain_round = plain_round_of(users)
    for _ in range(200):
        users.step()
        for writer in users.writers:
            share = writer.policy.rows  # type: ignore[attr-defined]
            behind = users.seconds - (1 + LossBudget.ALLOWANCE) * writer.tokens * plain_round
            # An account that is full forgets what it gains.
            assert behind <= DELAY * plain_round - share.offer.slack + 1e-9


@pytest.mark.slow
@settings(max_examples=30)
@against_an_adversary
def test_no_stretch_of_all_texts_takes_much_longer_than_plain_decoding(
    costs: str, patterns: list[list[bool]], lies: bool, copies: bool, host: float
) -> None:
    """An adversary chooses which tokens of each text are right, and its drafter's confidence."""
    users = users_of_an_adversary(costs, patterns, lies, copies, host)
    assert excess(users, 400) <= OVERDRAFT + LossBudget.MAX_BALANCE


def test_when_the_budget_of_all_is_spent_nobody_drafts() -> None:
    """Although each text has saved time by its own drafts."""
    users = SimulatedUsers(COSTS["GPU"], [User(0.9)] * 4, auto).run(100)
    assert any(len(writer.draft) for writer in users.writers)
    policy = users.writers[0].policy
    assert isinstance(policy, AdaptivePolicy)
    policy.rows.budget.loss_budget.add_step(1000.0, 1000.0, tokens=0, plain=1.0, texts=4)
    users.step()
    assert not any(len(writer.draft) for writer in users.writers)


def test_what_others_may_lose_in_a_decode_is_not_there_for_a_second_draft() -> None:
    users = SimulatedUsers(COSTS["GPU"], [User(0.9)] * 4, auto).run(100)
    first, second, *others = users.writers
    assert isinstance(second.policy, AdaptivePolicy)
    second.policy.rows.offer.risk = 1000.0
    users.step()
    assert not len(first.draft) and all(len(each.draft) for each in (second, *others))
    assert second.policy.rows.offer.risk == 0
    users.step()
    assert len(first.draft)
