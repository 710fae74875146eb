"""Policies of sequences that are made for one text: they begin where those before have ended."""

import random

import pytest
from fakes.machine import CostlyDrafter, FakeClock, Machine

from localspec.control.acceptance import NO_PRIOR
from localspec.control.adaptive import AdaptivePolicy
from localspec.control.policies import Policies
from localspec.control.row_budget import RowBudget
from localspec.generation_config import GenerationConfig
from localspec.sampling.params import SamplingParams


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
