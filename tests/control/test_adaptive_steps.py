"""Single decisions and steps of the adaptive policy, each by hand."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.machine import CheapDrafter, CostlyDrafter, FakeClock, OfTraits

from localspec.control import adaptive
from localspec.control.acceptance import Tally
from localspec.control.adaptive import AdaptivePolicy
from localspec.control.cost_model import CostModel
from localspec.control.drafter_cost import DrafterCost
from localspec.control.explanation import Explanation, explanation
from localspec.control.joint_drafting import NO_DRAFTING, Drafting
from localspec.control.pass_costs import PassCosts
from localspec.control.round_plan import RoundPlan
from localspec.control.row_budget import Offer, RowBudget, RowShare
from localspec.control.running_draft import Option, affordable_depth
from localspec.control.trials import is_trial_due
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.prefix import Prefix
from localspec.sampling.sampler import Sampler
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Limit
from localspec.speculation.policy import PLAIN_STEP, Step

LIMIT = Limit(400, Prefix(0), Sampler(SamplingParams(), Noise(0)))
# A further row takes a tenth of a plain pass.
LINEAR = {1: 1.0, 2: 1.1, 32: 4.1}


def policy_of(
    *drafters: Any,
    share: RowShare | None = None,
    costs: dict[int, float] = LINEAR,
    change: float = 0.0,
    apart: bool = False,
    **options: Any,
) -> AdaptivePolicy:
    """A draft of each takes 0.3 s, and 0.1 s for each further token; to read a token 0.05 s."""
    passes = PassCosts(costs, change=change, unequal_apart=apart)
    known = {each.name: DrafterCost(0.3, 0.1, 0.05) for each in drafters}
    policy = AdaptivePolicy(drafters, CostModel(passes, known), rows=share, **options)
    policy.begin()
    return policy


def shares(texts: int) -> list[RowShare]:
    budget = RowBudget()
    made = [budget.new_share() for _ in range(texts)]
    for each in made:
        each.begin(None)
    return made


def drafter(name: str = "costly", **traits: Any) -> CostlyDrafter:
    made = OfTraits(FakeClock(), **traits)
    made.name = name
    return made


def balance(policy: AdaptivePolicy) -> float:
    return policy.loss_budget.available(0.0)


def drafting(policy: AdaptivePolicy, *, reading: float = 0.0, catching_up: float = 0.0) -> None:
    """A draft of the first candidate runs, whose tokens cost a quarter of a second each."""
    policy._running = SimpleNamespace(  # type: ignore[assignment]
        candidate=policy.candidates[0],
        reading=reading,
        read_within=lambda _seconds: reading,
        catching_up=catching_up,
        survivals=[],
        expected_seconds=lambda tokens: 0.25 * tokens + catching_up,
    )


# How much is still to come.


def test_answers_are_expected_to_be_as_long_as_those_before() -> None:
    head = drafter(reads_hidden=(1,))
    policy = policy_of(head)
    asked = list[tuple[float, float]]()
    policy.candidates[0].resume = lambda *given: asked.append(given)  # type: ignore[method-assign]
    for tokens in (28, 0, 2):
        assert policy.reads(head, 50)
        for _ in range(tokens):
            policy.learn(Step((), 0, 1, (5,), 1.0, 0.0))
        policy.begin()
    policy.reads(head, 50)
    policy.reads(head)
    # A row of the widest pass takes 4.1 / 32, and a tenth of the time of plain decoding is allowed.
    rows = 50 * 4.1 / 32
    expected = [12.8, 7.8, 7.8, 4.0]
    assert asked == [(pytest.approx(rows), pytest.approx(each)) for each in expected]


def test_as_many_tokens_are_to_come_as_were_expected_at_first_and_as_there_are() -> None:
    policy = policy_of(drafter())
    asked = list[tuple[int, float]]()
    policy._option = lambda _each, limit, left: asked.append((limit.depth, left))  # type: ignore[assignment, func-returns-value]
    policy.decide(LIMIT)
    for _ in range(100):
        policy.learn(Step((), 0, 1, (5,), 1.0, 0.0))
    policy.rows.ask_all()
    policy.decide(LIMIT)
    policy.decide(LIMIT.to(4))
    assert asked == [(31, 128.0), (31, 228.0), (4, 5.0)]
    assert policy_of(deepest=99).padded(1) == 1
    deepest = policy_of(drafter(), deepest=99)
    deepest._option = lambda _each, limit, left: asked.append((limit.depth, left))  # type: ignore[assignment, func-returns-value]
    deepest.decide(LIMIT)
    assert asked[-1][0] == 31


def test_a_lost_drafter_drafts_again_in_the_next_text_if_it_is_not_lost_for_good() -> None:
    one, other = drafter("one"), drafter("other")
    policy = policy_of(one, other)
    policy.rows.offer.risk = 5.0
    policy.lose(one, for_good=False)
    assert policy.drafters == [other]
    policy.begin()
    assert policy.drafters == [one, other] and policy.rows.offer.risk == 0.0
    policy.lose(one, for_good=True)
    policy.begin()
    assert policy.drafters == [other]


# What a step of a text alone is charged.


def test_a_plain_step_is_charged_what_plain_steps_take_and_what_heads_read() -> None:
    policy = policy_of(drafter())
    policy.learn(Step((), 0, 1, (5,), 9.0, 0.0, reading={"costly": 0.25}))
    assert balance(policy) == pytest.approx(1.02 - 1.25)
    # A pass that evaluates rejected tokens again is the drafts' doing: its own time counts.
    policy.learn(Step((), 0, 3, (5,), 1.4, 0.0, again=2, reading={"costly": 0.25}))
    assert balance(policy) == pytest.approx(2 * 1.02 - 1.25 - 1.4)


def test_the_way_back_to_plain_passes_is_charged_to_plain_steps() -> None:
    policy = policy_of(drafter(), change=2.0)
    policy._passes.take_lost = lambda: 0.5  # type: ignore[method-assign]
    policy.learn(Step((), 0, 1, (5,), 9.0, 0.0))
    assert balance(policy) == pytest.approx(1.02 - 1.5)


@pytest.mark.parametrize(("seconds", "charged"), [(2.0, 2.0), (99.0, 2 * (1.2 + 0.5 + 0.25 + 0.3))])
def test_a_draft_is_charged_its_time_without_the_reading_of_the_prompt(
    seconds: float, charged: float
) -> None:
    """At most twice what the pass, the draft, catching up and the reading of rows should take."""
    policy = policy_of(drafter())
    drafting(policy, reading=5.0, catching_up=0.3)
    policy.learn(Step((5, 5), 2, 3, (5, 6), 5.0 + seconds, 0.5, reading={"another": 0.25}))
    assert balance(policy) == pytest.approx(2 * 1.02 - charged)


@pytest.mark.parametrize(
    ("tokens", "seconds", "gain"), [(3, 2.0, 0.1), (2, 2.0, 0.0), (1, 3.0, -0.2)]
)
def test_the_gain_of_a_draft_is_the_time_saved_in_plain_steps(
    tokens: int, seconds: float, gain: float
) -> None:
    policy = policy_of(drafter(), drafter("another", reads_hidden=(1,)))
    drafting(policy, reading=5.0)
    reading = {"costly": 0.25, "another": 0.125}  # its own reading is its own cost
    done = Step((5, 5), 2, 3, (5,) * tokens, 5.125 + seconds, 0.5, reading=reading)
    policy.learn(done)
    candidate, other = policy.candidates
    assert candidate.gain == pytest.approx(gain) and other.gain == 0.0
    # It has paid if it took less time; else it waits twice as long for its next trial.
    assert candidate._wait == (1 if gain > 0 else 2) and other._wait == 1
    assert candidate.acceptance_rates.observed and not other.acceptance_rates.observed
    # The others save up for theirs.
    assert other._exploration_budget == pytest.approx(0.02 * tokens)
    assert candidate.affordable(24, 0.0) == 0.0


@pytest.mark.parametrize(("new_run", "gain"), [(True, 0.1), (False, 0.05)])
def test_a_run_of_drafts_pays_for_its_beginning_and_no_single_draft(
    *, new_run: bool, gain: float
) -> None:
    policy = policy_of(drafter(), change=2.0)
    policy._passes.take_lost = lambda: 0.5  # type: ignore[method-assign]
    policy._passes._changes._drafted = 2 if new_run else 50  # type: ignore[union-attr]
    drafting(policy)
    policy.learn(Step((5, 5), 2, 3, (5, 5, 5), 2.5, 0.5))
    assert policy.candidates[0].gain == pytest.approx(gain)


def test_a_pass_tells_what_so_many_rows_take_without_drafting() -> None:
    told = list[tuple[int, float | None]]()
    policy = policy_of(drafter())
    policy._passes.learn = lambda rows, seconds: told.append((rows, seconds))  # type: ignore[method-assign]
    ahead = list[tuple[int, float, float]]()
    policy.candidates[0].overlap.learn = lambda *given: ahead.append(given)  # type: ignore[method-assign]
    one = {"others": (5,), "decode_seconds": 1.7, "share": 0.6}
    policy.learn(Step((), 0, 3, (5,), 1.5, 0.4, **one))  # type: ignore[arg-type]
    drafting(policy)
    policy.learn(Step((5, 5), 2, 3, (5,), 1.5, 0.4, ahead=2, **one))  # type: ignore[arg-type]
    policy._running = None
    policy.learn(Step((), 0, 3, (5,), 1.5, 0.4, again=2, **one))  # type: ignore[arg-type]
    assert told == [(8, pytest.approx(0.5 + 1.7)), (8, None)]
    assert ahead == [(2, pytest.approx(2.2), pytest.approx(policy._passes.seconds(8)))]


@pytest.mark.parametrize(("reports", "first"), [(False, 0.5), (True, 0.3)])
def test_whole_drafts_tell_what_tokens_take_where_they_are_not_timed(
    *, reports: bool, first: float
) -> None:
    policy = policy_of(drafter())
    candidate = policy.candidates[0]
    candidate.reports_confidence = reports
    for _ in range(3):
        drafting(policy)
        policy.learn(Step((5, 5), 2, 3, (5,), 2.2, 1.0))
    assert candidate.cost.first == pytest.approx(first)


def test_beside_others_a_plain_step_seldom_tells_what_plain_decoding_costs() -> None:
    """Nor is its speed that of a plain round, where others draft: both are told."""
    own, other = shares(2)
    policy, told = policy_of(drafter(), share=own), list[Explanation]()
    policy.explain = told.append
    policy._steps_since_plain = 4
    policy.candidates[0].gain = 1.0
    other.offer.bring([0.9], Drafting([0.0, 0.0]), 1)
    assert policy.decide(LIMIT).drafter
    assert told[0].plain_rate == pytest.approx(2.9 / 1.2)


def test_steps_without_a_verified_token_are_plain() -> None:
    """To measure what these take, one is due behind four with drafts."""
    policy, due = policy_of(drafter()), []
    for verified in (1, 1, 1, 0, 1, 1, 1, 1):
        drafting(policy)
        policy.learn(Step((5,), verified, 1 + verified, (5,), 1.5, 0.3))
        due.append(policy._chosen([])[1] == "to see what a plain step costs now")
    assert due == [False] * 7 + [True]


# Beside others.


def test_what_a_draft_beside_another_text_is_charged() -> None:
    own, other = shares(2)
    policy = policy_of(drafter(), share=own)
    policy._passes.share(2)
    policy.decide(LIMIT)
    drafting(policy, reading=5.0)
    # Two of the four rows are its own; without its token it would have taken half a plain decode.
    decode, share = 1.3, 0.65
    step = Step((5,), 1, 2, (5, 5), 5.25 + share, 5.25, 0, (2,), decode, share)
    every = own.budget.loss_budget.available(0.0)
    policy.learn(step)
    plain = 1.1 / 2
    own_seconds = 0.25 + plain + 0.1
    assert balance(policy) == pytest.approx(2 * 1.02 * plain - own_seconds)
    charged = 2 * 1.02 * plain - (0.25 + share)
    assert own.budget.loss_budget.available(0.0) - every == pytest.approx(charged)
    # A plain step beside a plain step costs all of them what plain steps take, and what is read.
    before = own.budget.loss_budget.available(0.0)
    policy._running = None
    policy._passes.take_lost = lambda: 0.5  # type: ignore[method-assign]
    reading = {"costly": 0.125}
    policy.learn(Step((), 0, 1, (5,), 0.675, 0.0, 0, (1,), 1.1, 0.55, reading))
    charged = 0.02 * plain - 0.125 - 0.25
    assert own.budget.loss_budget.available(0.0) - before == pytest.approx(charged)
    assert other.budget is own.budget
    # Nor is what it takes to decide, beside a draft or padding.
    before = own.budget.loss_budget.available(0.0)
    policy._passes.take_lost = lambda: 0.0  # type: ignore[method-assign]
    share = 1.2 / 3
    policy.learn(Step((), 0, 1, (5,), share + 0.4, 0.4, 0, (2,), 1.2, share))
    charged = 1.02 * plain - share
    assert own.budget.loss_budget.available(0.0) - before == pytest.approx(charged)


def test_long_rounds_are_charged_to_all_up_to_twice_what_was_expected() -> None:
    own, _ = shares(2)
    policy = policy_of(drafter(), share=own)
    policy.decide(LIMIT)
    drafting(policy)
    every = own.budget.loss_budget.available(0.0)
    policy.learn(Step((5,), 1, 2, (5, 5), 30.375, 0.25, 0, (2,), 60.0, 30.0, {"another": 0.125}))
    expected = 1.3 / 2 + 0.25 + 0.125
    charged = 2 * 1.02 * 0.55 - 2 * expected
    assert own.budget.loss_budget.available(0.0) - every == pytest.approx(charged)


def test_what_all_wait_for_while_a_drafter_catches_up_is_charged_to_all() -> None:
    own, _ = shares(2)
    policy = policy_of(drafter(), share=own)
    policy.decide(LIMIT)
    drafting(policy, catching_up=8.0)
    every = own.budget.loss_budget.available(0.0)
    policy.learn(Step((5,), 1, 2, (5, 5), 8.25 + 0.65, 8.25, 0, (2,), 1.3, 0.65))
    charged = 2 * 1.02 * 0.55 - 8.9
    assert own.budget.loss_budget.available(0.0) - every == pytest.approx(charged)


def test_beside_others_a_token_is_worth_what_the_best_round_without_it_takes() -> None:
    """While others draft, all wait longer for it than for a plain step."""
    own, other = shares(2)
    policy = policy_of(drafter(), share=own)
    policy.decide(LIMIT)
    policy._round.plain = 2 * policy._round.share
    drafting(policy)
    policy.learn(Step((5,), 1, 2, (5, 5), 0.25 + 0.65, 0.25, 0, (2,), 1.3, 0.65))
    plain, took = 0.55, 0.25 + 0.55 + 0.1
    worth = 2 * plain
    gain = 2 - (took + worth - plain) / worth
    assert policy.candidates[0].gain == pytest.approx(0.1 * gain)
    assert other.others == [own.offer]


def test_what_a_drafter_may_read_is_saved_up_by_all_texts_together() -> None:
    own, _ = shares(2)
    policy = policy_of(drafter(), share=own)
    policy.decide(LIMIT)
    policy._running = None
    policy.learn(Step((), 0, 1, (5, 5), 0.55, 0.0, 0, (1,), 1.1, 0.55))
    assert policy.candidates[0]._exploration_budget == pytest.approx(0.02 * 2 * 0.55 / 2)


def test_a_round_learns_of_the_reading_of_a_prompt_and_of_changes() -> None:
    own, _ = shares(2)
    policy = policy_of(drafter(), share=own, change=2.0)
    told = list[Any]()
    own.learn = lambda *given: told.append(given[2:])  # type: ignore[method-assign]
    policy.decide(LIMIT)
    drafting(policy, reading=5.0)
    policy._passes.take_lost = lambda: 0.5  # type: ignore[method-assign]
    policy.learn(Step((5,), 1, 2, (5, 5), 5.9, 5.25, 0, (2,), 1.3, 0.65))
    assert told == [(5.0, 0.5)]


# Decisions.


def test_a_rest_is_a_plain_step_that_all_know_of() -> None:
    own, other = shares(2)
    cheap = CheapDrafter(lambda: 0, lambda: True)
    policy = policy_of(cheap, share=own)
    policy._running = object()  # type: ignore[assignment]
    rested = list[Sequence[Offer]]()
    policy.candidates[0].rest = rested.append  # type: ignore[method-assign]
    own._in_vain, own._company = 99, 1
    own.offer.depth = 3
    assert policy.decide(LIMIT) == PLAIN_STEP
    assert policy._running is None and rested == [[other.offer]]
    assert own.offer.decided and own.offer.depth == 0


@pytest.mark.parametrize("texts", [1, 2])
def test_who_may_not_rest_decides(texts: int) -> None:
    """A row for a copy costs a tenth of a plain pass, deciding alone two; beside others all would
    be asked too, and it looks once its pass is computed.
    """
    own = shares(texts)[0]
    policy = policy_of(CheapDrafter(lambda: 0, lambda: True), share=own)
    candidate = policy.candidates[0]
    rows, rested = list[float](), list[object]()
    candidate.has_likely_copy = lambda _limit, row=1.0, place=1: (
        bool(rows.append(row)) or len(rows) == 1
    )  # type: ignore[method-assign, func-returns-value]
    candidate.rest = rested.append  # type: ignore[method-assign]
    rests = list[bool]()
    for _ in range(3):
        own._in_vain, own._company = 99, texts - 1
        own._alone.takes, own._alone._gain = 0.2, -0.2
        policy.decide(LIMIT)
        rests.append(policy.rests)
        if policy.rests:
            policy.look(LIMIT)
    if texts == 1:
        assert rows == [pytest.approx(0.3)] * 3
        assert len(rested) == 2 and rests == [False] * 3
    else:
        assert rows == [pytest.approx(1.0)] * 2
        assert len(rested) == 2 and rests == [True, False, True]


def test_the_first_that_drafts_plans_for_all_and_has_all_asked() -> None:
    own, other = shares(2)
    other.offer.bring([0.9, 0.8], Drafting([0.0, 0.0, 0.0]), 0)
    other.offer.decided = False
    other._in_vain = 99
    policy = policy_of(drafter(), share=own)
    policy.candidates[0].gain = 1.0
    other._in_vain = 99
    assert policy.decide(LIMIT).drafter
    assert other.offer.planned and other.offer.depth and not other._in_vain


def option(policy: AdaptivePolicy, rate: float) -> Option:
    """Of four tokens, and of plain steps of the others."""
    candidate, others = policy.candidates[0], len(policy.rows.others)
    plan = RoundPlan(4, (1,) * others, 0.0, 2.0, float("inf"), (0,) * others)
    drafting = Drafting([0.0, 0.3, 0.4, 0.5, 0.6], replays=[0.0, 0.01, 0.02, 0.03, 0.04])
    return Option(candidate, plan, 2.0, rate, [0.9] * 4, drafting, 0.0, 0.25, 1.0)


def test_drafting_must_promise_two_percent_or_have_paid() -> None:
    policy = policy_of(drafter())
    policy.decide(LIMIT)
    candidate = policy.candidates[0]
    candidate._wait = 99
    for rate, gain, chosen in ((1.03, -1.0, True), (1.01, -1.0, False), (0.5, 0.1, True)):
        candidate.gain = gain
        assert (policy._chosen([option(policy, rate)])[0] is not None) is chosen


def test_what_a_draft_may_lose_is_its_time_beyond_a_plain_step() -> None:
    policy = policy_of(drafter())
    policy.decide(LIMIT)
    policy._start(option(policy, 1.5), LIMIT)
    assert policy.rows.offer.risk == pytest.approx(0.4 + 0.6 + 0.04 + 0.25)
    running = policy._running
    assert running and running.plain_or_best_rate == 1.5
    policy._start(option(policy, 0.5), LIMIT)
    assert policy._running and policy._running.plain_or_best_rate == 1.0, "as a plain step"


def test_a_draft_beside_others_is_drawn_by_the_rows_that_are_planned_for_them() -> None:
    policy = policy_of(drafter(), share=shares(2)[0])
    policy.decide(LIMIT.to(0))
    chosen = option(policy, 1.5)
    chosen.plan = chosen.plan._replace(others=(4,), depths=(3,))
    policy._start(chosen, LIMIT)
    assert policy._running and policy._running.passes[3] == pytest.approx(policy._passes.seconds(7))


def test_a_look_is_worth_two_percent_of_a_plain_step_and_never_while_others_wait() -> None:
    def looks(gain: float, share: RowShare | None = None) -> bool:
        policy = policy_of(drafter(), share=share)
        policy.decide(LIMIT.to(0))
        policy.candidates[0].gain_of_looking = lambda *_: gain + 0.25  # type: ignore[method-assign]
        tried = option(policy, 0.5)  # which first catches up for 0.25 s
        return policy._reason_to_try(tried) is not None

    assert looks(0.021) and not looks(0.019)
    assert not looks(9.0, shares(2)[0])


def test_no_more_ready_tokens_are_told_than_are_drafted() -> None:
    policy = policy_of(drafter(ready=lambda: 9))
    assert explanation(option(policy, 1.5), 1.0, "").ready == 4


def test_a_copy_is_scored_though_it_was_not_taken() -> None:
    policy = policy_of(CheapDrafter(lambda: 3, lambda: True))
    policy.decide(LIMIT)
    policy._running = None
    policy.learn(Step((), 0, 1, (1,), 1.0, 0.0))
    counts = policy.candidates[0].counts
    assert (counts.total.right, counts.total.tried) == (1, 1)


def test_a_cheap_draft_is_proposed_once() -> None:
    policy = policy_of(CheapDrafter(lambda: 3, lambda: True), costs={1: 1.0, 32: 1.01})
    decision = policy.decide(LIMIT)
    assert decision.draft and len(decision.draft) == decision.depth == 3


def test_how_far_a_draft_may_grow() -> None:
    """Alone as far as its drafter can; beside others, and in one pass, as planned."""

    def depths(share: RowShare | None = None, *, reports: bool = True, **traits: Any) -> int:
        policy = policy_of(drafter(**traits), share=share)
        policy.candidates[0].reports_confidence = reports
        policy.decide(LIMIT)
        return policy._start(option(policy, 1.5), LIMIT.to(31)).depth

    assert depths() == 31 and depths(deepest=9) == 9
    assert depths(parallel=True) == depths(reports=False) == depths(shares(2)[0]) == 4


def test_depths_that_the_budget_bears() -> None:
    """Nothing accepted, the step may take eight plain steps longer than a plain one."""
    policy = policy_of(drafter())
    policy.decide(LIMIT)
    drafting = Drafting(
        [1.0 * depth for depth in range(9)], replays=[0.5 * depth for depth in range(9)]
    )
    # A token costs 1.6 s: in the pass, to draw it, and to evaluate it again.
    round_, most = policy._round, policy._available()
    assert affordable_depth([0.9] * 8, drafting, round_, most) == 5
    assert affordable_depth([0.9] * 8, drafting, round_, most - 0.1) == 4
    assert affordable_depth([0.9, 0.5, 0.01, 0.9], drafting, round_, most) == 2
    assert affordable_depth([0.01, 0.9], drafting, round_, most) == 2, "one token may be tried"
    assert affordable_depth([], NO_DRAFTING, round_, most) == 0


def test_what_a_decode_has_no_room_for_is_offered_for_the_next() -> None:
    """Else who decides last offers little, gets no more by the others' plans, and so for ever."""
    own, *others = shares(3)
    policy = policy_of(drafter(), share=own)
    for other in others:
        other.offer.bring([0.9] * 31, Drafting([0.0] * 32), 27)
    policy.decide(LIMIT)
    assert policy._round.table()[7] < policy._round.table()[8] == float("inf")
    most = policy._available()
    assert affordable_depth([0.9] * 20, Drafting([0.0] * 21), policy._round, most) == 20


def test_the_budget_of_all_is_what_others_have_not_yet_risked() -> None:
    own, other = shares(2)
    policy = policy_of(drafter(), share=own)
    policy.decide(LIMIT)
    # Of all, four decodes; of this text alone, eight.
    assert policy._available() == pytest.approx(4 * 1.1)
    other.offer.risk = 1.5
    assert policy._available() == pytest.approx(4 * 1.1 - 1.5)
    policy.loss_budget.add_step(5.0, 5.0, 0, 1.1)
    assert policy._available() == pytest.approx(min(8 * 1.1 - 5.0, 4 * 1.1 - 1.5))


def test_a_trial_beside_others_is_of_one_token() -> None:
    """They pay for it too, and one tells enough; a text alone tries what seems best."""
    depths, told = [], list[Explanation]()
    for share in (None, shares(2)[0]):
        policy = policy_of(drafter(), share=share)
        policy.explain = told.append
        policy.decide(LIMIT)
        tried = option(policy, 0.5)
        policy._chosen = lambda _options, tried=tried: (tried, adaptive._TRIED_AGAIN)  # type: ignore[method-assign, misc]
        depths.append(policy.decide(LIMIT).depth)
    assert depths == [4, 1]
    said = [each for each in told if each.reason == adaptive._TRIED_AGAIN]
    assert [(each.depth, each.expected) for each in said] == [(4, 2.0), (1, 1.9)]
    # The four tokens take 2 / 0.5 seconds; three rows, and what these take to draw, are left out.
    assert [each.rate for each in said] == [0.5, pytest.approx(1.9 / (4.0 - 0.3 - 0.3))]


def test_a_trial_waits_longer_the_more_all_lose_by_it_and_is_told() -> None:
    own, other = shares(2)
    policy = policy_of(drafter(), share=own)
    policy.decide(LIMIT.to(0))
    asked, plain = list[tuple[float, bool]](), policy._round.plain
    policy.candidates[0].is_trial_due = lambda patience, in_company: (  # type: ignore[method-assign, assignment]
        asked.append((patience, in_company)) or len(asked) > 1  # type: ignore[func-returns-value]
    )
    for rate, others_try, due in ((0.75 / plain, False, False), (1.5 / plain, True, True)):
        other.offer.trial = others_try
        assert is_trial_due(option(policy, rate), policy._round, own) is own.offer.trial is due
    assert asked == [(pytest.approx(26.0), False), (pytest.approx(1.0), True)]


def test_what_others_see_of_a_drafter_is_expected_and_nothing_is_offered_twice() -> None:
    own, other = shares(2)
    other.seen["costly"] = Tally(0, 16)
    policy = policy_of(drafter(), share=own)
    policy.decide(LIMIT)
    assert policy.candidates[0].acceptance_rates.pooled == pytest.approx(0.7 * 4 / 20)
    policy._drafts = ([0.9], NO_DRAFTING)  # what found no round in the step before
    policy.decide(LIMIT.to(0))
    assert not own.offer.survivals


def test_which_drafters_have_read_the_prompt_is_told() -> None:
    read, reads, far = drafter("read"), drafter("reads"), drafter("far")
    reads.backlog = far.backlog = 100
    policy = policy_of(read, reads, far)
    policy.learn(Step((), 0, 1, (5,), 1.0, 0.0))
    policy.decide(LIMIT)
    [_, candidate, _] = policy.candidates
    policy._offer([], None)
    assert policy.rows.offer.read == {"read"}
    chosen = option(policy, 1.5)
    chosen.candidate = candidate
    policy._offer([chosen], chosen)
    assert policy.rows.offer.read == {"read", "reads"}


def test_what_is_verified_and_drawn_ahead() -> None:
    policy = policy_of(drafter())
    draft = Draft([5, 5, 5])
    assert policy.keep(draft) == 3 and policy.ahead(draft) == 0
    policy._running = SimpleNamespace(keep=lambda: 1, survivals=[0.5], tokens_ahead=lambda n: n + 1)  # type: ignore[assignment]
    assert policy.keep(draft) == 1 and policy.ahead(draft) == 4
    own, _ = shares(2)
    beside = policy_of(drafter(), share=own)
    beside.decide(LIMIT)
    beside._running = policy._running
    assert beside.ahead(draft) == 0


@pytest.mark.parametrize(("seconds", "slowdown"), [(1.0, 1), (7.0, 4)])
def test_prompts_are_read_with_what_was_written_since_and_answers_token_by_token(
    seconds: float, slowdown: float
) -> None:
    """On a long text reading slows down on average half as much as plain passes did."""
    behind = drafter()
    policy = policy_of(behind, costs={1: 1.0, 2: 1.0, 32: 1.0})
    for _ in range(5):
        policy.learn(Step((), 0, 1, (5,), seconds, 0.0))
    policy.decide(LIMIT)
    told = list[tuple[float, float, float]]()
    best = policy._round.best

    def asked(survivals: Any, drafting: Any, late: float, latest: float, savings: Any) -> Any:
        told.append((drafting.unread, late, latest))
        return best(survivals, drafting, late, latest, savings)

    policy._round.best = asked  # type: ignore[method-assign]
    for backlog in (5, 6, 2):
        behind.backlog = backlog
        policy._option(policy.candidates[0], LIMIT.to(4), 100.0)
    # Two tokens are read with the first one that is drawn.
    assert told == [
        (0.0, pytest.approx(slowdown * 3 * 0.05 / 5), pytest.approx(slowdown * 3 * 0.05)),
        (pytest.approx(slowdown * 6 * 0.05), 0.0, 0.0),
        (0.0, 0.0, 0.0),
    ]


def test_tokens_are_drawn_ahead_alone_and_where_the_rule_needs_no_probabilities() -> None:
    asked = list[int]()
    for number, (share, needs_probs) in enumerate(
        [(None, False), (None, True), (shares(2)[0], False)]
    ):
        policy = policy_of(drafter(), share=share)
        candidate = policy.candidates[0]
        candidate.savings = lambda *_, number=number: asked.append(number) or []  # type: ignore[method-assign, func-returns-value, misc]
        policy.decide(replace(LIMIT, needs_probs=needs_probs))
    assert asked == [0]


@pytest.mark.parametrize(
    ("texts", "saved", "drafts", "pauses"),
    [(1, 5.0, True, False), (1, 4.9, False, False), (2, 4.9, False, False), (2, 1.2, False, True)],
)
def test_a_prompt_is_read_where_as_much_is_saved_by_it(
    texts: int, saved: float, *, drafts: bool, pauses: bool
) -> None:
    """Or as may be spent to learn about the drafter, of which each text has its share."""
    far = drafter()
    far.backlog = 100
    policy = policy_of(far, share=shares(texts)[0])
    policy.decide(LIMIT.to(0))
    candidate, round_ = policy.candidates[0], policy._round
    plan = RoundPlan(2, (1,) * (texts - 1), 0.0, 2.0, float("inf"))
    round_.best = lambda *_: (plan, 1.5)  # type: ignore[method-assign, assignment]
    round_.saved = lambda *_: saved  # type: ignore[method-assign, assignment]
    paused, may_spend = list[object](), [0.0]
    candidate.pause = lambda *given: paused.append(given)  # type: ignore[method-assign]
    asked = list[tuple[float, float]]()
    candidate.affordable = lambda *given: asked.append(given) or may_spend[0]  # type: ignore[method-assign, func-returns-value]
    option = policy._option(candidate, LIMIT.to(4), 60.0)
    assert bool(option) is drafts and bool(paused) is pauses
    may_spend[0] = 5.0
    option = policy._option(candidate, LIMIT.to(4), 60.0)
    assert option and option.reading == pytest.approx(5.0)
    assert option.expected == pytest.approx(1 + 0.7 + 0.49)
    assert asked[0] == (60.0, pytest.approx(1.0 if texts == 1 else 1.1 / 4))
