"""The policy of a fixed depth."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from fakes.machine import SAMPLER
from fakes.toy import Scripted

from localspec.control.fixed_depth import FixedDepth
from localspec.control.pass_costs import PassCosts
from localspec.control.row_budget import RowBudget
from localspec.sampling.prefix import Prefix
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Drafter, Limit, Traits
from localspec.speculation.policy import Decision, Step


def limit(depth: int) -> Limit:
    return Limit(depth, Prefix(0), SAMPLER)


def named(name: str, count: int) -> Drafter:
    drafter = Scripted(lambda text, limit: Draft([5] * min(count, limit.depth)))
    drafter.name = name
    return drafter


class WithChances(Scripted):
    """A drafter that estimates its chances before it proposes."""

    def __init__(self, *chances: float) -> None:
        super().__init__(lambda text, limit: Draft([5] * len(chances)))
        self.traits = Traits(chances=lambda limit: chances[: limit.depth])


def decide(drafters: Sequence[Drafter], most: int = 10) -> Decision:
    policy = FixedDepth(drafters, 3)
    decision = policy.decide(limit(most))
    policy.learn(Step((), 0, 1, (), 1.0, 0.0))
    assert policy.keep(Draft([1, 2])) == 2
    return decision


def test_without_drafters_every_step_is_plain() -> None:
    assert decide([]).drafter is None


@pytest.mark.parametrize(("most", "depth"), [(10, 3), (2, 2)])
def test_the_depth_is_fixed_except_at_the_end(most: int, depth: int) -> None:
    one = named("one", 9)
    decision = decide([one], most)
    assert (decision.drafter, decision.depth) == (one, depth)
    assert decide([one], 0).drafter is None


def test_of_several_the_first_with_a_proposal_drafts() -> None:
    silent, one, two = named("silent", 0), named("one", 2), named("two", 3)
    decision = decide([silent, one, two])
    assert (
        decision.drafter is one
        and decision.draft is not None
        and list(decision.draft.tokens) == [5, 5]
    )
    assert decide([silent, two]).drafter is two
    assert decide([silent]).drafter is silent


@pytest.mark.parametrize(("chances", "chosen"), [((0.9, 0.1), 0), ((0.3, 0.9), 1), ((), 1)])
def test_a_drafter_with_low_chances_leaves_the_step_to_the_next(
    chances: tuple[float, ...], chosen: int
) -> None:
    drafters = [WithChances(*chances), named("other", 3)]
    assert decide(drafters).drafter is drafters[chosen]
    assert decide(drafters[:1]).drafter is drafters[0], "alone it always drafts"


def test_the_next_draft_and_the_guess_before_it_are_drawn_ahead_but_not_beside_others() -> None:
    budget = RowBudget()
    own, other = budget.new_share(), budget.new_share(lambda: beside)
    policy, beside = FixedDepth([named("one", 9)], 3, rows=own), False
    assert policy.ahead(Draft([1, 2])) == 4
    beside = True
    assert policy.ahead(Draft([1, 2])) == 0 and own.others == [other.offer]


def test_what_passes_take_is_learnt_and_what_changes_cost_is_charged_to_the_text() -> None:
    passes, told, shared = PassCosts({1: 1.0}, change=2.0), list[object](), list[object]()
    share = RowBudget().new_share()
    policy = FixedDepth([named("one", 9)], 3, rows=share, passes=passes)
    passes.learn = lambda *given: told.append(given)  # type: ignore[method-assign]
    passes.take_lost = lambda: 0.5  # type: ignore[method-assign]
    share.learn = lambda *given, lost: shared.append((given[1], lost))  # type: ignore[method-assign]
    asked = list[bool]()
    share.ask_all = lambda: asked.append(True)  # type: ignore[method-assign]
    step = Step((5,), 1, 2, (5,), 3.0, 1.0)
    for each in (step, replace(step, ahead=2), Step((), 0, 3, (5,), 3.0, 0.0, again=2)):
        policy.learn(each)
    assert told == [(2, 2.0), (2, None)]
    assert shared == [(passes, 0.5)] * 3
    assert len(asked) == 2, "one that drafts has the others asked"
