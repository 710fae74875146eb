"""Drawing one token to see how sure the drafter is: what it is worth, and when it is done."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.bench.experiments.simulated_drafter import COSTS
from localspec.control import adaptive
from localspec.control.acceptance import BINS, ConfidenceTable
from localspec.control.adaptive import AdaptivePolicy
from localspec.control.cost_model import CostModel
from localspec.control.drafter_cost import DrafterCost
from localspec.control.looking import gain_of_looking
from localspec.control.pass_costs import PassCosts
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.prefix import Prefix
from localspec.sampling.sampler import Sampler
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import Limit, Outcome, Traits
from localspec.speculation.policy import Step

SAMPLER = Sampler(SamplingParams(), Noise(0))
OUTCOMES = st.lists(st.tuples(st.floats(0.01, 1), st.floats(0, 1)), min_size=1, max_size=4).map(
    lambda each: [(share / sum(s for s, _ in each), chance) for share, chance in each]
)
PASSES = st.lists(st.floats(0.0, 1.0), min_size=5, max_size=5)


def by_hand(
    outcomes: Sequence[tuple[float, float]],
    rates: Sequence[float],
    passes: Sequence[float],
    first: float,
    further: float,
) -> float:
    """The gain by following every outcome: how many tokens are accepted, and what the step took."""
    total = 0.0
    for share, chance in outcomes:
        gains = [0.0]  # a plain step after all
        for depth in range(1, len(rates) + 2):
            seconds = passes[depth + 1] - passes[1] + (depth - 1) * further
            accepted, reached = 0.0, chance
            for count in range(1, depth + 1):  # exactly so many are accepted
                last = count == depth
                accepted += count * reached * (1.0 if last else 1 - rates[count - 1])
                reached *= 1.0 if last else rates[count - 1]
            gains.append(accepted * passes[1] - seconds)
        total += share * max(gains)
    return total - first


@given(
    OUTCOMES,
    st.lists(st.floats(0, 1), max_size=3),
    PASSES,
    st.floats(0, 0.5),
    st.floats(0, 0.5),
)
def test_the_gain_is_that_of_every_outcome_by_hand(
    outcomes: list[tuple[float, float]],
    rates: list[float],
    steps: list[float],
    first: float,
    further: float,
) -> None:
    passes = [0.0, 1.0]
    for more in steps:
        passes.append(passes[-1] + more)
    expected = by_hand(outcomes, rates, passes, first, further)
    assert gain_of_looking(outcomes, rates, passes, first, further) == pytest.approx(expected)


def test_a_table_knows_how_often_each_confidence_came() -> None:
    table = ConfidenceTable()
    before = table.outcomes(0.7)
    assert len(before) == BINS and sum(share for share, _ in before) == pytest.approx(1)
    for _ in range(300):
        table.learn(5.0, True)
        table.learn(0.2, False)
    shares, chances = zip(*table.outcomes(0.7), strict=True)
    assert shares[-1] == pytest.approx(0.5, abs=0.02) and shares[2] == pytest.approx(0.5, abs=0.02)
    assert chances[-1] > 0.95 and chances[2] < 0.05
    assert chances[-1] == table.chance(5.0, 0.7) and chances[2] == table.chance(0.2, 0.7)


# In a simulated text: where the average draft does not pay, but sure ones do.


class Moody:
    """Sure of `share` of its drafts, whose first `length` tokens are right; others are wrong."""

    name = "moody"

    def __init__(self, share: float, length: int = 3, *, says: bool = True) -> None:
        self.traits = Traits(gives_probs=True)
        self._length = length
        self._random, self._share, self._says = Random(1), share, says
        self.drawn = self.drafts = 0

    def begin(self, tokens: Sequence[int]) -> None: ...

    def observe(self, outcome: Outcome) -> None: ...

    def propose(self, limit: Limit) -> Draft:
        self.drafts += 1
        tokens: list[int] = []
        sure = self._random.random() < self._share
        while len(tokens) < limit.depth:
            right = sure and len(tokens) < self._length
            tokens.append(int(right))
            self.drawn += 1
            if limit.go_on and not limit.go_on(5.0 if right and self._says else 0.2):
                break
        return Draft(tokens)


def speed(drafter: Moody, tokens: int = 1500) -> float:
    """Tokens per plain step of a text, with passes of 0.9B Q4_0 and drafts at a twentieth."""
    passes = PassCosts(COSTS["Q4_0 B"])
    costs = CostModel(passes, {drafter.name: DrafterCost(0.05, 0.05)})
    policy = AdaptivePolicy([drafter], costs)  # type: ignore[list-item]
    policy.begin()
    true, done, seconds = PassCosts(COSTS["Q4_0 B"]), 0, 0.0
    while done < tokens:
        decision = policy.decide(limit := Limit(tokens - done, Prefix(0), SAMPLER))
        draft = NOTHING
        if decision.drafter:
            draft = drafter.propose(limit.to(decision.depth, decision.go_on))
        verified = policy.keep(draft)
        right = draft.tokens[:verified]
        accepted = next((at for at, each in enumerate(right) if not each), verified)
        rows = policy.padded(verified + 1)
        drafting = 0.05 * len(draft)
        took = true.seconds(rows) + drafting
        policy.learn(Step(draft.tokens, verified, rows, [1] * (accepted + 1), took, drafting))
        done, seconds = done + accepted + 1, seconds + took
    return done / seconds


def test_sure_drafts_pay_where_the_average_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = Moody(0.2)
    looking = speed(drafter)
    monkeypatch.setattr(adaptive, "is_worth_a_look", lambda *_: False)
    without = speed(Moody(0.2))
    assert looking > 1.1 and looking > 1.04 * without
    assert drafter.drawn > drafter.drafts


@pytest.mark.parametrize("share", [0.0, 0.02])
def test_nobody_looks_where_nothing_is_sure(share: float) -> None:
    drafter = Moody(share)
    assert speed(drafter) > 0.98
    assert drafter.drafts < 120


def test_what_is_not_said_cannot_be_seen() -> None:
    """Of a drafter that is as sure of wrong tokens as of right ones, looking is worth nothing."""
    assert speed(Moody(0.35, says=False)) > 0.97
