"""Drafts recorded while the target writes: those that the real loop would have verified."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes.pycode import PYCODE
from fakes.respelled import write_respelled

import localspec
from localspec.control.drafter_cost import DrafterCost
from localspec.drafters.model_free import MODEL_FREE
from localspec.engine.engine import Engine
from localspec.forecast.answers import RecordedAnswer
from localspec.forecast.forecast import forecast_auto, forecast_head, simulated_auto
from localspec.forecast.model_free import count_steps
from localspec.forecast.recorded_drafts import (
    RecordedDraft,
    ReplayedDrafter,
    must_be_recorded,
    record_drafts,
)
from localspec.forecast.scored_answers import ScoredAnswers, score_answers
from localspec.forecast.timing import StepCosts
from localspec.generation_config import GenerationConfig, GenerationOptions
from localspec.models import registry
from localspec.models.kinds import THROUGH_TEXT
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Limit, Outcome, Traits
from localspec.speculation.rules import RULES
from localspec.stats import Stats

TRAINED = Path(__file__).parents[1] / "trained"
PROMPTS = ["How do I list files by size?", "What does tar xvf do?", "Show the last lines of a log"]
# Flash attention and one thread: a pass's logits do not depend on its width.
EXACT = {"threads": 1, "context": 512, "flash_attention": True, "gpu_layers": 0}
KINDS = ("eagle3", "dflash", "medusa", "pard", "through text")


def options(temperature: float = 0.8) -> GenerationOptions:
    return {"max_tokens": 40, "temperature": temperature, "seed": 5, "ignore_eos": True}


@pytest.fixture(scope="module", params=KINDS)
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    target, kind = registry.bundled().target, request.param
    draft: str | Path = TRAINED / f"{kind}-terminal-9m-q8_0.gguf"
    if kind == "pard":
        draft = f"pard=3:{registry.bundled().drafter}"
    if kind == "through text":
        folder = tmp_path_factory.mktemp("respelled")
        target, draft = PYCODE.target, write_respelled(folder / "other.gguf", PYCODE.drafter)
    with localspec.load(target, draft, **EXACT) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def scored(engine: Engine) -> ScoredAnswers:
    with engine.slots.own.new_context(GenerationConfig.of(**options())) as context:
        return score_answers(engine, context, PROMPTS, options())


def test_a_real_loop_takes_the_steps_that_the_records_say(
    engine: Engine, scored: ScoredAnswers
) -> None:
    """The text, the steps, what is drafted and what is accepted, at every depth."""
    [head] = scored.recorded
    assert scored.model is None and not scored.scored
    respelled = engine.drafter_set.members[0].kind == THROUGH_TEXT
    partly = 0
    for depth in (1, 2, 4):
        for number, answer in enumerate(scored.answers):
            real = engine.generate(
                answer.prompt, **{**options(), "seed": 5 + number, "depth": depth}
            )
            assert real.token_ids == answer.tokens
            counts = count_steps(head.replayed(number), depth, first_plain=head.reads_prompt)
            seen = real.stats.steps, real.stats.drafted, real.stats.accepted
            expected = counts.steps, counts.drafted, counts.accepted
            # Spelled anew, a short draft is not always the beginning of a longer one.
            about = 0.15 if respelled else 0
            assert expected == pytest.approx(seen, rel=about)
            partly += 0 < real.stats.accepted < real.stats.drafted
    assert partly


def test_the_rate_is_that_of_first_tokens(scored: ScoredAnswers) -> None:
    [head] = scored.recorded
    firsts = [
        each.tokens[0] == answer.tokens[place]
        for answer, drafts in zip(scored.answers, head._drafts, strict=True)
        for place, each in enumerate(drafts)
        if each.tokens
    ]
    assert 0 < np.mean(firsts) < 1
    assert scored.rates[head.name] == pytest.approx(np.mean(firsts))


def test_a_forecast_has_every_depth_that_was_recorded_and_auto(
    engine: Engine, scored: ScoredAnswers
) -> None:
    [head] = scored.recorded
    deepest = max(len(each.tokens) for drafts in head._drafts for each in drafts)
    passes = {rows: 1 + 0.02 * (rows - 1) for rows in range(1, 33)}
    free = {name: DrafterCost(first=0.001) for name in MODEL_FREE}
    cheap = StepCosts(passes, 0.0, 0.01, {**free, head.name: DrafterCost(0.02, 0.0)})
    lines = [*forecast_head(head, scored.answers, cheap)]
    assert [line.depth for line in lines] == [*range(1, min(16, deepest) + 1)]
    steps = simulated_auto(engine.drafter_set.drafters, scored, cheap)
    auto = forecast_auto(scored.answers, steps, cheap)
    assert any(each.accepted for answer in steps for each in answer)
    assert auto.speed_up.value > 0.9 * max(line.speed_up.value for line in lines)


def test_recording_leaves_nothing_behind(engine: Engine) -> None:
    """The next text is that of a fresh engine, and its drafts are accepted as before."""
    asked = {**options(), "depth": 3}
    engine.generate(PROMPTS[1], **asked)
    before = engine.generate(PROMPTS[0], **asked)
    [head] = engine.drafter_set.drafters
    tokens, drafts = record_drafts(engine, head, PROMPTS[0], **options())
    assert tokens == before.token_ids and len(drafts) == len(tokens)
    if head.traits.gives_probs:
        assert all(len(each.confidences) == len(each.tokens) for each in drafts)
        assert len({sure for each in drafts for sure in each.confidences}) > 20
    engine.generate(PROMPTS[1], **asked)
    after = engine.generate(PROMPTS[0], **asked)
    assert after.token_ids == before.token_ids
    assert after.stats.accepted == before.stats.accepted


def test_what_can_be_tried_afterwards_is_not_recorded() -> None:
    with localspec.load(PYCODE.target, PYCODE.drafter, **EXACT) as loaded:
        assert not any(must_be_recorded(each) for each in loaded.drafter_set.members)


# The replay alone.


class Head:
    name = "head"
    traits = Traits(reads_hidden=(1, 2), deepest=3)

    def begin(self, tokens: Sequence[int]) -> None: ...

    def observe(self, outcome: Outcome) -> None: ...


def replayed(
    drafts: list[RecordedDraft], tokens: list[int], traits: Traits = Head.traits
) -> tuple[ReplayedDrafter, Limit]:
    head = Head()
    head.traits = traits
    sampler = Sampler(SamplingParams(temperature=0.0), RULES["coupled"].randomness(1))
    answer = RecordedAnswer([1, 2], tokens, len(tokens), sampler, Stats())
    drafter = ReplayedDrafter(head, [answer], [drafts])
    drafter.begin([1, 2])
    return drafter, Limit(3, sampler.prefix([1, 2]), sampler)


def test_a_replayed_draft_ends_where_the_policy_ends_it() -> None:
    drafter, limit = replayed([RecordedDraft((7, 8, 9), (3.0, 1.0, 2.0))] * 3, [7, 8, 5])
    asked: list[float] = []

    def sure(confidence: float) -> bool:
        asked.append(confidence)
        return confidence > 2

    assert drafter.propose(limit.to(2)).tokens == [7, 8]
    assert drafter.propose(replace(limit, go_on=sure)).tokens == [7, 8]
    assert asked == [3.0, 1.0]
    counts = drafter.replayed(0)
    assert counts.drafted.tolist() == [3, 3, 3] and counts.correct.tolist() == [2, 0, 0]


def test_a_record_that_ended_early_has_no_drafts_there() -> None:
    drafter, limit = replayed([RecordedDraft((7,), (3.0,))], [7, 8])
    drafter.observe(Outcome([7], 1))
    assert not len(drafter.propose(limit))
    assert drafter.replayed(0).drafted.tolist() == [1, 0]


def test_a_replayed_draft_model_has_the_prompt_to_read_once() -> None:
    drafter, limit = replayed([RecordedDraft((7, 8), ())] * 4, [7, 5, 7, 8])
    assert drafter.traits.backlog is None
    own = Traits(backlog=lambda: 0)
    drafter, limit = replayed([RecordedDraft((7, 8), ())] * 6, [7, 5, 7, 8, 9, 9], own)
    assert drafter.traits.backlog and drafter.traits.backlog() == 2
    drafter.propose(limit)
    assert drafter.traits.backlog() == 0
    # It has evaluated the first token of its draft, which stands, but not the other one.
    drafter.observe(Outcome([7, 5], 1))
    assert drafter.traits.backlog() == 1
    drafter.propose(limit)
    drafter.observe(Outcome([7, 8, 9], 2))
    assert drafter.traits.backlog() == 2


def test_a_prompt_that_is_asked_twice_has_drafts_for_each_answer() -> None:
    drafter, limit = replayed([RecordedDraft((7,), ())] * 2, [7, 7])
    first = drafter._answers[0]
    answers = [first, replace(first, tokens=[8, 8, 8])]
    twice = ReplayedDrafter(drafter, answers, [drafter._drafts[0], [RecordedDraft((8,), ())] * 3])
    for expected in (7, 8, 7):
        twice.begin([1, 2])
        assert twice.propose(limit).tokens == [expected]
    twice.begin([1, 2])
    twice.observe(Outcome([8, 8], 0))
    assert twice.propose(limit).tokens == [8]
