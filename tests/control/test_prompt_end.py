"""A drafter that may read only the end of a prompt: two candidates, of which one drafts."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from localspec.bench.experiments.long_prompts import PromptReader, Run, speed_in_one_run
from localspec.bench.experiments.simulated_drafter import COSTS, FIRST, FURTHER, READING
from localspec.control.acceptance import AcceptancePrior, DraftCounts, Tally, from_end_name
from localspec.control.adaptive import AdaptivePolicy
from localspec.control.cost_model import CostModel
from localspec.control.cost_profile import DrafterSeconds
from localspec.control.explanation import Explanation
from localspec.control.fixed_depth import FixedDepth
from localspec.control.pass_costs import PassCosts
from localspec.control.prompt_reading import without_vain_reading
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.prefix import Prefix
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Limit, Outcome
from localspec.speculation.policy import Step

LIMIT = Limit(200, Prefix(0), Sampler(SamplingParams(), Noise(0)))
F16 = COSTS["F16 A"]


def reader(prompt: int, *, may_leave_out: bool = True) -> PromptReader:
    drafter = PromptReader((0.9, 0.9), may_leave_out=may_leave_out)
    drafter.start(prompt, 400, seed=1)
    return drafter


def policy_of(drafter: PromptReader, prior: AcceptancePrior | None = None) -> AdaptivePolicy:
    cost = DrafterSeconds(FIRST, FURTHER, READING).cost(F16)
    costs = CostModel(PassCosts(F16), {drafter.name: cost})
    policy = AdaptivePolicy([drafter], costs, prior=prior or AcceptancePrior())
    policy.begin()
    return policy


@pytest.mark.parametrize(("prompt", "from_end"), [(127, False), (128, True), (2000, True)])
def test_a_long_prompt_is_left_out_but_for_its_end(prompt: int, from_end: bool) -> None:
    reasons: list[Explanation] = []
    policy = policy_of(drafter := reader(prompt))
    policy.explain = reasons.append
    decision = policy.decide(LIMIT)
    assert decision.drafter is drafter and decision.from_end is from_end
    assert reasons[0].reason.endswith("from the end of the prompt") is from_end
    assert reasons[0].drafter == drafter.name


def test_one_that_leaves_nothing_out_is_one_candidate() -> None:
    assert len(policy_of(reader(2000, may_leave_out=False)).all_candidates) == 1
    policy = policy_of(drafter := reader(2000))
    assert [each.from_end for each in policy.all_candidates] == [True, False]
    assert policy.drafters == policy.all_drafters == [drafter], "it is told of the text once"
    policy.lose(drafter, for_good=False)
    assert not policy.candidates and len(policy.all_candidates) == 2
    policy.lose(drafter, for_good=True)
    assert not policy.all_drafters


def test_what_is_read_is_kept_in_use() -> None:
    """Once all was read nothing is left out, and behind the end it goes on behind the end."""
    for from_end in (False, True):
        policy = policy_of(drafter := reader(2000))
        drafter.propose(LIMIT.to(3, from_end=from_end))
        drafter.observe(Outcome([1, 1], 1))
        assert policy.decide(LIMIT).from_end is from_end


@pytest.mark.parametrize("unread", [1, 100, 2000])
def test_one_without_room_for_all_drafts_from_the_end_or_not_at_all(unread: int) -> None:
    for prompt, fits in ((2000, True), (2000, False), (90, False)):
        drafter = reader(prompt)
        end = drafter.traits.end if fits else lambda: 64
        drafter.traits = replace(
            drafter.traits,
            backlog=lambda: unread,
            end=end if prompt > 90 else lambda: None,
            fits=lambda fits=fits: fits,
        )
        decision = policy_of(drafter).decide(LIMIT)
        assert (decision.drafter is drafter) is (prompt > 90)
        assert fits or decision.from_end is (prompt > 90)
        decision = FixedDepth([drafter], 3).decide(LIMIT)
        assert (decision.drafter is drafter) is (prompt > 90)
        assert decision.from_end is (prompt > 90 and not fits)


def test_what_was_not_read_is_no_gain() -> None:
    """A draft that should read the end of a prompt first, and proposes nothing at once."""
    policy = policy_of(reader(2000))
    assert policy.decide(LIMIT).from_end
    seconds = F16[1] + 0.001
    policy.learn(Step((), 0, 1, (1,), seconds, 0.001, decode_seconds=F16[1], share=F16[1]))
    assert abs(policy.all_candidates[0].gain) < 0.01


def option(drafter: Any, rate: float, reading: float, *, from_end: bool) -> Any:
    candidate = SimpleNamespace(drafter=drafter, from_end=from_end)
    return SimpleNamespace(candidate=candidate, rate=rate, reading=reading)


def test_all_is_read_where_it_saves_more_than_it_takes() -> None:
    """A token takes 0.5 behind the end and 0.4 behind all, which takes 8 longer to read."""
    one, other = SimpleNamespace(), SimpleNamespace()
    end, whole = option(one, 2.0, 2.0, from_end=True), option(one, 2.5, 10.0, from_end=False)
    beside = option(other, 1.0, 50.0, from_end=False)
    assert without_vain_reading([end, whole, beside], 79.0) == [end, beside]
    assert without_vain_reading([end, whole, beside], 81.0) == [end, whole, beside]
    # Without the other way it is compared with plain decoding alone, elsewhere.
    assert without_vain_reading([whole, beside], 1.0) == [whole, beside]
    # One that has read all of it reads no more.
    read = option(one, 1.5, 0.0, from_end=False)
    assert without_vain_reading([read], 1.0) == [read]


def test_each_way_has_rates_of_its_own_and_learns_from_the_other() -> None:
    policy = policy_of(reader(2000))
    end, whole = policy.all_candidates
    before = whole.acceptance_rates.pooled
    for _ in range(20):
        end.learn([0], [1])
    assert whole.acceptance_rates.pooled == before
    policy.decide(LIMIT)
    assert end.acceptance_rates.pooled < whole.acceptance_rates.pooled < before
    assert end.counts.total.tried == 20 and not whole.counts.total.tried


def test_what_earlier_runs_kept_of_each_way_is_told_apart() -> None:
    bad = DraftCounts()
    for _ in range(40):
        bad.add(0, False)
    drafter = reader(300)
    kept = AcceptancePrior({drafter.name: 0.9}, {from_end_name(drafter.name): bad})
    end, whole = policy_of(drafter, kept).all_candidates
    assert whole.acceptance_rates.pooled == 0.9
    assert end.acceptance_rates.chances(1)[0] < 0.6
    assert end.is_known and not whole.is_known


def test_a_few_tokens_stand_for_many() -> None:
    assert Tally(30.0, 40.0).few(4.0) == Tally(3.0, 4.0)
    assert Tally(3.0, 4.0).few(40.0) == Tally(3.0, 4.0)
    assert Tally().few(4.0) == Tally()


def test_short_answers_behind_long_prompts_gain() -> None:
    """In virtual time; a drafter that reads all gains nothing, and one of no use costs little."""
    good, useless = (0.9, 0.88), (0.05, 0.05)
    assert speed_in_one_run(F16, good, 2000, 24, 8, may_leave_out=False) == pytest.approx(1.0)
    assert speed_in_one_run(F16, good, 2000, 24, 8, may_leave_out=True) > 1.6
    for prompt in (300, 2000):
        assert speed_in_one_run(F16, useless, prompt, 60, 16, may_leave_out=True) > 0.95


@pytest.mark.parametrize("users", [2, 4])
def test_so_do_those_of_several_users(users: int) -> None:
    """And a drafter of no use costs as little beside others as it does alone."""
    good, useless = (0.9, 0.88), (0.05, 0.05)
    for rates, least in ((good, 1.2), (useless, 0.95)):
        speed = speed_in_one_run(F16, rates, 2000, 60, 6, may_leave_out=True, users=users)
        assert speed > least


def test_beside_others_all_is_not_read_for_their_drafts() -> None:
    """They need not read it: what eight texts save together pays for no prompt of 2,000 tokens."""
    run = Run(COSTS["Q4_0 A"], (0.7, 0.68), may_leave_out=True, users=8)
    assert min(1 / run.seconds(2000, 200, seed) for seed in range(5)) > 0.9


def test_where_nothing_can_be_left_out_several_pay_for_reading_together() -> None:
    """As beside a drafter that never leaves anything out: eight short prompts are read by all."""
    for may_leave_out in (True, False):
        run = Run(COSTS["Q4_0 A"], (0.9, 0.88), may_leave_out=may_leave_out, users=8)
        assert 6 / sum(run.seconds(60, 60, seed) for seed in range(6)) > 1.1
