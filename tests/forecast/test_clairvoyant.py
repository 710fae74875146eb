"""The clairvoyant takes the least time there is, and what others lose against it adds up."""

from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np
import pytest
from fakes.prompts import PROMPTS
from fakes.pycode import load

from localspec.control.drafter_cost import DrafterCost
from localspec.drafters.model_free import MODEL_FREE
from localspec.engine.engine import Engine
from localspec.forecast.against_clairvoyant import against_clairvoyant
from localspec.forecast.clairvoyant import (
    MISSED,
    OTHER,
    READING,
    SHORT,
    WRONG,
    Clairvoyant,
    KnownDrafts,
    right_runs,
)
from localspec.forecast.forecast import forecast_draft_model, forecast_model_free, simulated_auto
from localspec.forecast.scored_answers import ScoredAnswers, score_answers
from localspec.forecast.simulated_run import SimulatedStep
from localspec.forecast.timing import StepCosts
from localspec.generation_config import GenerationConfig, GenerationOptions
from localspec.speculation.drafter import Limit, proposal
from localspec.speculation.passes import run

MODEL = "pycode-4m-q4_0"
STAIRCASE = {rows: 1 + 0.4 * ((rows + 3) // 4) for rows in range(1, 33)}


def least(count: int, limit: int, costs: StepCosts, drafters: Mapping[str, KnownDrafts]) -> float:
    """By trying every plan."""

    @cache
    def rest(place: int, read: frozenset[str]) -> float:
        if place == count:
            return sum(drafters[name].reading for name in read)
        found = costs.passes[1] + costs.host + rest(place + 1, read)
        for name, drafter in drafters.items():
            for depth in range(1, min(int(drafter.right[place]), limit - place - 1) + 1):
                after = min(count, place + depth + 1)
                rows = min(costs.passes[rows] for rows in costs.passes if rows > depth)
                own = rows + (after - place) * costs.host + drafter.seconds(depth)
                found = min(found, own + rest(after, read | {name}))
        return found

    return rest(0, frozenset())


@pytest.mark.parametrize("seed", range(20))
def test_no_plan_takes_less(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 12))
    limit = count + int(rng.integers(0, 2))
    drafters = {
        name: KnownDrafts(
            DrafterCost(*rng.uniform(0, 0.5, 2)),
            cheap,
            right_runs([bool(each) for each in rng.random(count) < 0.7]),
            reading,
        )
        for name, cheap, reading in (
            ("suffix", True, 0.0),
            ("model", False, float(rng.uniform(0, 2))),
            ("head", False, float(rng.uniform(0, 2))),
        )
    }
    costs = StepCosts(STAIRCASE, 0.3, 0.05, {})
    found = Clairvoyant(count, limit, costs, drafters).seconds
    assert found == pytest.approx(least(count, limit, costs, drafters))


def test_what_a_step_loses_has_its_reason() -> None:
    costs = StepCosts({1: 1.0, 2: 1.2, 3: 1.4, 4: 1.6, 32: 7.2}, 0.5, 0.1, {})
    model, copy = DrafterCost(0.1, 0.1), DrafterCost(0.01)
    drafters = {
        "model": KnownDrafts(model, False, np.array([3, 2, 1, 0])),
        "suffix": KnownDrafts(copy, True, np.array([1, 0, 0, 0])),
    }
    best = Clairvoyant(4, 4, costs, drafters)
    assert best.seconds == pytest.approx(1.6 + 0.4 + 0.3)

    def lost(*steps: SimulatedStep) -> Mapping[str, float]:
        found = best.losses(steps)
        assert sum(found.by_reason.values()) == pytest.approx(found.seconds - found.least)
        return {reason: each for reason, each in found.by_reason.items() if abs(each) > 1e-9}

    whole = SimulatedStep("model", 3, 3, 4, 2.3, 0, 0, 0)
    assert lost(whole) == {}
    assert lost(SimulatedStep("model", 3, 3, 4, 2.8, 0.2, 0.3, 0)).keys() == {
        READING,
        "passes of changing width",
    }
    plain = SimulatedStep(None, 0, 0, 1, 1.1, 0, 0, 0)
    assert lost(*[plain] * 4).keys() == {MISSED}
    two = SimulatedStep("model", 1, 1, 2, 1.5, 0, 0, 0)
    assert lost(two, two).keys() == {SHORT}
    copied = SimulatedStep("suffix", 1, 1, 2, 1.41, 0, 0, 0)
    assert lost(copied, two).keys() == {OTHER}
    wrong = SimulatedStep("model", 2, 1, 2, 1.8, 0, 0, 0)
    assert lost(two, wrong)[WRONG] == pytest.approx(0.3)


def test_what_an_unread_drafter_gains_is_part_of_what_its_reading_costs() -> None:
    """The clairvoyant saves the reading of a drafter that the policy lets read and draft."""
    model = DrafterCost(0.1, 0.1)
    passes = dict.fromkeys(range(1, 65), 1.0)
    drafters = {"model": KnownDrafts(model, False, right_runs([True] * 4), reading=50.0)}
    best = Clairvoyant(4, 4, StepCosts(passes, 0.0, 0.0, {}), drafters)
    assert best.seconds == 4
    found = best.losses([SimulatedStep("model", 3, 3, 4, 51.3, 50.0, 0.0, 0.0)])
    assert found.by_reason.keys() - {WRONG} == {READING}
    assert found.by_reason[READING] == pytest.approx(47.3)


def options(temperature: float) -> GenerationOptions:
    return {"max_tokens": 48, "temperature": temperature, "seed": 5}


def costs(*, drafts: float = 0.05, pass_more: float = 0.05) -> StepCosts:
    passes = {rows: 1 + pass_more * (rows - 1) for rows in range(1, 33)}
    free = {name: DrafterCost(first=0.001) for name in MODEL_FREE}
    return StepCosts(passes, 0.0, 0.1, {**free, MODEL: DrafterCost(drafts, drafts, drafts / 10)})


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with load(threads=1, context=512, flash_attention=True) as loaded:
        yield loaded


@pytest.fixture(scope="module", params=[0.0, 0.8])
def scored(engine: Engine, request: pytest.FixtureRequest) -> ScoredAnswers:
    settings = options(request.param)
    with engine.slots.own.new_context(GenerationConfig.of(**settings)) as context:
        return score_answers(engine, context, PROMPTS, settings)


def test_the_tokens_that_a_draft_model_draws_are_known(
    engine: Engine, scored: ScoredAnswers
) -> None:
    answer, text, model = scored.answers[1], scored.scored[1], engine.drafter_set.drafters[-1]
    assert model.name == MODEL and text.drawn is not None
    for place, right in enumerate(text.drawn.tolist()):
        before = answer.text[: len(answer.prompt) + place]
        model.begin(before)
        limit = Limit(1, answer.sampler.prefix(before), answer.sampler)
        [drafted] = run(proposal(model, limit)).tokens
        assert right == (drafted == answer.tokens[place])


@pytest.mark.parametrize("drafts", [0.01, 0.3])
@pytest.mark.parametrize("pass_more", [0.02, 0.5])
def test_nobody_is_faster_and_the_losses_add_up(
    engine: Engine, scored: ScoredAnswers, drafts: float, pass_more: float
) -> None:
    known = costs(drafts=drafts, pass_more=pass_more)
    drafters = engine.drafter_set.drafters
    steps = simulated_auto(drafters, scored, known)
    found = against_clairvoyant([each.name for each in drafters], steps, scored, known)
    losses = found.losses
    assert sum(losses.by_reason.values()) == pytest.approx(losses.seconds - losses.least)
    assert all(each > -1e-9 for reason, each in losses.by_reason.items() if reason != READING)
    assert 0.5 < losses.share <= 1
    assert found.speed_up.value >= 1
    greedy = scored.answers[0].sampler.params.temperature == 0
    fixed = [
        *(each for each in forecast_model_free(scored, known) if each.drafter == "suffix"),
        *(forecast_draft_model(scored, known) if greedy else ()),
    ]
    assert max(each.speed_up.value for each in fixed) <= found.speed_up.value
