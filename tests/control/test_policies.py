"""Policies of sequences that are made for one text: they begin where those before have ended."""

import random

import pytest
from fakes.machine import SAMPLER, CostlyDrafter, FakeClock, Machine, OfTraits

from localspec.control.acceptance import NO_PRIOR
from localspec.control.adaptive import AdaptivePolicy
from localspec.control.cost_model import CostModel
from localspec.control.pass_costs import PassCosts
from localspec.control.policies import Policies
from localspec.control.row_budget import RowBudget
from localspec.generation_config import GenerationConfig
from localspec.sampling.params import SamplingParams
from localspec.sampling.prefix import Prefix
from localspec.speculation.drafter import Limit


class Texts:
    """Texts of a sequence each, beside one that stays."""

    def __init__(self, curve: str, chance: float, *, keeps: bool = True) -> None:
        self.clock, self.keeps = FakeClock(), keeps
        self.machine, self.random, self.chance = (
            Machine(self.clock, curve),
            random.Random(1),
            chance,
        )
        self.own = self.sequence()

    def sequence(self) -> Policies:
        drafter = CostlyDrafter(self.clock, lambda: self.random.random() < self.chance)
        return Policies([drafter], self.machine.costs(drafter), lambda *_: NO_PRIOR)

    def begin(self) -> Policies:
        begun = self.sequence()
        begun.go_on(self.own)
        return begun

    def end(self, sequence: Policies) -> None:
        if self.keeps:
            self.own.keep(sequence)

    def policy(self, sequence: Policies, temperature: float = 0.0) -> AdaptivePolicy:
        params = SamplingParams(temperature=temperature)
        found = sequence.policy(GenerationConfig(), params, deepest=31, clock=self.clock)
        assert isinstance(found, AdaptivePolicy)
        return found

    def speed(self, count: int, tokens: int) -> float:
        """Tokens per plain pass, in so many texts."""
        began = self.clock.now
        for _ in range(count):
            sequence = self.begin()
            self.machine.write(self.policy(sequence), tokens, most=tokens)
            self.end(sequence)
        return count * tokens / (self.clock.now - began)


@pytest.mark.parametrize("chance", [0.05, 0.25])
@pytest.mark.parametrize("curve", ["cpu", "moe"])
def test_short_texts_do_not_each_pay_to_learn_the_same(curve: str, chance: float) -> None:
    assert Texts(curve, chance).speed(25, 16) > 0.96
    assert Texts(curve, chance, keeps=False).speed(25, 16) < 0.9


def test_drafts_that_pay_are_drafted_from_the_beginning() -> None:
    assert Texts("cpu", 0.6).speed(50, 40) > 1.05
    assert Texts("cpu", 0.6, keeps=False).speed(50, 40) < 1.0


def test_what_was_learnt_goes_on_with_the_drafters_and_costs_of_the_new_text() -> None:
    texts = Texts("cpu", 0.1)
    first = texts.begin()
    learnt = texts.policy(first)
    texts.machine.write(learnt, 64, most=64)
    [candidate] = learnt.all_candidates
    balance, gain = learnt.loss_budget.available(0), candidate.gain
    assert balance and gain < 0
    learnt.rows = gone = RowBudget().new_share()
    learnt.explain = lambda _decision: None
    texts.end(first)
    assert learnt.explain is None and learnt.rows is not gone

    second, third = texts.begin(), texts.begin()
    assert texts.policy(second, temperature=0.8) is not learnt, "it is for another temperature"
    gone_on = texts.policy(second)
    assert gone_on.loss_budget.available(0) == balance
    [candidate] = gone_on.all_candidates
    assert candidate.gain == gain
    assert candidate.drafter is second._drafters[0]
    assert second.costs and candidate.cost is second.costs.drafter("costly")
    assert texts.policy(third).loss_budget.available(0) == 0, "no two texts go on from one"


def test_what_a_text_did_not_need_is_kept_for_the_next() -> None:
    texts = Texts("cpu", 0.1)
    first = texts.begin()
    texts.machine.write(texts.policy(first), 64, most=64)
    balance = texts.policy(first).loss_budget.available(0)
    texts.end(first)
    second = texts.begin()
    texts.policy(second, temperature=0.8)
    texts.end(second)
    assert texts.policy(texts.begin()).loss_budget.available(0) == balance


def test_a_text_that_has_lost_its_drafter_for_good_teaches_nothing() -> None:
    texts = Texts("cpu", 0.9)
    first = texts.begin()
    policy = texts.policy(first)
    policy.lose(policy.drafters[0], for_good=True)
    texts.end(first)
    assert texts.policy(texts.begin()).drafters


def test_a_text_of_other_drafters_teaches_nothing() -> None:
    """As where an engine was switched while the text was written."""
    texts = Texts("cpu", 0.9)
    first = texts.begin()
    first.policy(GenerationConfig(drafter="costly"), SamplingParams(), deepest=31)
    drafter = CostlyDrafter(texts.clock, lambda: True, name="another")
    texts.own = Policies([drafter], texts.machine.costs(drafter), lambda *_: NO_PRIOR)
    texts.end(first)
    assert not texts.begin()._before


def policies_of(*drafters: object, costs: PassCosts) -> Policies:
    return Policies(drafters, CostModel(costs), lambda *_: NO_PRIOR)  # type: ignore[arg-type]


def test_other_costs_hold_for_all_policies_that_there_are() -> None:
    drafter = CostlyDrafter(FakeClock(), lambda: True)
    policies = policies_of(drafter, costs=PassCosts({1: 1.0}))
    policy = policies.policy(GenerationConfig(), SamplingParams(), deepest=31)
    policies.use_costs(CostModel(costs := PassCosts({1: 2.0})))
    assert isinstance(policy, AdaptivePolicy) and policy._passes is costs


def test_counts_are_taken_once_and_not_of_unusual_texts() -> None:
    policies = policies_of(CostlyDrafter(FakeClock(), lambda: True), costs=PassCosts({1: 1.0}))
    usual, unusual = (
        policies.policy(GenerationConfig(), params, deepest=31)
        for params in (SamplingParams(), SamplingParams(mirostat=2))
    )
    for policy in (usual, unusual):
        assert isinstance(policy, AdaptivePolicy)
        policy.candidates[0].learn([5, 5], [5, 6])
    for tried in (2, 0):
        [(_, _, name, counts)] = policies.take_counts()
        assert (name, counts.total.tried) == ("costly", tried)


def test_without_drafts_only_those_that_read_hidden_rows_follow_the_text() -> None:
    head = OfTraits(FakeClock(), reads_hidden=(1,))
    policies = policies_of(
        CostlyDrafter(FakeClock(), lambda: True), head, costs=PassCosts({1: 1.0})
    )
    for depth, drafters in ((0, [head]), (3, [*policies._drafters])):
        policy = policies.policy(GenerationConfig(depth=depth), SamplingParams(), deepest=31)
        assert [*policy.drafters] == drafters


def test_no_depth_is_deeper_than_drafts_may_be() -> None:
    policies = policies_of(CostlyDrafter(FakeClock(), lambda: True), costs=PassCosts({1: 1.0}))
    policy = policies.policy(GenerationConfig(depth=9), SamplingParams(), deepest=3)
    assert policy.decide(Limit(99, Prefix(0), SAMPLER)).depth == 3


@pytest.mark.parametrize(("deepest", "rows"), [(1, 2), (2, 2), (3, 4)])
def test_fixed_depths_are_padded_to_rows_that_drafts_may_have(deepest: int, rows: int) -> None:
    budget = RowBudget()
    own, _ = budget.new_share(), budget.new_share()
    policies = policies_of(costs=PassCosts({1: 1.0, 2: 1.8, 4: 1.7}))
    policy = policies.policy(GenerationConfig(depth=0), SamplingParams(), deepest=deepest, rows=own)
    assert policy.padded(2) == rows


def test_where_changes_cost_time_fixed_depths_keep_rows_of_any_width() -> None:
    policies = policies_of(costs=PassCosts({1: 1.0, 32: 1.1}, change=2.0))
    policy = policies.policy(GenerationConfig(depth=0), SamplingParams(), deepest=1)
    assert [policy.padded(rows) for rows in (8, 8, 8, 8, 5)][-2:] == [8, 8]
    # Another text begins behind other passes.
    policies.policy(GenerationConfig(depth=0), SamplingParams(), deepest=1)
    assert policy.padded(5) == 5


def test_a_policy_keeps_its_share_where_it_gets_no_other() -> None:
    policies = policies_of(CostlyDrafter(FakeClock(), lambda: True), costs=PassCosts({1: 1.0}))
    share = RowBudget().new_share()
    for rows in (share, None):
        policy = policies.policy(GenerationConfig(), SamplingParams(), deepest=31, rows=rows)
        assert isinstance(policy, AdaptivePolicy) and policy.rows is share
