"""What is predicted is what happens: steps and acceptance, and which costs make what the best."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes.prompts import PROMPTS
from fakes.pycode import PYCODE, load

from localspec.control.adaptive import AdaptivePolicy
from localspec.control.drafter_cost import DrafterCost
from localspec.drafters.model_free import MODEL_FREE
from localspec.drafters.suffix import Suffix
from localspec.engine.engine import Engine
from localspec.forecast.confidence import ratio_interval
from localspec.forecast.forecast import (
    DEPTHS,
    ConfigurationForecast,
    forecast,
    forecast_auto,
    forecast_draft_model,
    forecast_model_free,
    forecast_plain,
    ranked,
    simulated_auto,
)
from localspec.forecast.model_free import count_steps, replay_drafts
from localspec.forecast.replay import ScoredText, expected_steps
from localspec.forecast.scored_answers import ScoredAnswers, score_answers
from localspec.forecast.simulated_run import SimulatedRun, model_free_run
from localspec.forecast.simulation import Simulation
from localspec.forecast.timing import DEEPEST, StepCosts
from localspec.generation_config import GenerationConfig, GenerationOptions
from localspec.speculation.decoder import Decoder
from localspec.speculation.drafter import Limit, backlog
from localspec.speculation.policy import PLAIN_STEP, Decision, Step
from localspec.speculation.rules import RULES
from localspec.stats import Stats

LENGTH = 48
TEMPERATURES = (0.0, 0.8)
# Interval and measurement each have an error; and several are looked at.
WIDENED = 2.0


def options(temperature: float) -> GenerationOptions:
    return {"max_tokens": LENGTH, "temperature": temperature, "seed": 5}


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    # One thread and flash attention: a pass's logits do not depend on its width.
    with load(threads=1, context=512, flash_attention=True) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def scored(engine: Engine) -> Mapping[float, ScoredAnswers]:
    found = {}
    for temperature in TEMPERATURES:
        settings = options(temperature)
        with engine.slots.own.new_context(GenerationConfig.of(**settings)) as context:
            found[temperature] = score_answers(engine, context, PROMPTS, settings)
    return found


def costs(*, drafts: float = 0.05, pass_more: float = 0.05, host: float = 0.1) -> StepCosts:
    """A plain pass takes 1; each further row so much, a model's draft so much per token."""
    passes = {rows: 1 + pass_more * (rows - 1) for rows in range(1, 33)}
    free = {name: DrafterCost(first=0.001) for name in MODEL_FREE}
    model = DrafterCost(drafts, drafts, drafts / 10)
    return StepCosts(passes, 0.0, host, {**free, "pycode-4m-q4_0": model})


# Steps and acceptance.


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("depth", [1, 4, 9])
@pytest.mark.parametrize("name", MODEL_FREE)
def test_what_model_free_drafters_do_is_known_exactly(
    scored: Mapping[float, ScoredAnswers], name: str, depth: int, temperature: float
) -> None:
    with load(draft=name, threads=1, context=512, flash_attention=True) as engine:
        for number, answer in enumerate(scored[temperature].answers):
            counts = count_steps(scored[temperature].drafts[name][number], depth)
            # As in the prediction, nothing of the answers before is remembered.
            engine.drafter_set.drafters[0].__init__()  # type: ignore[misc]
            settings: GenerationOptions = {**options(temperature), "seed": 5 + number}
            real = engine.generate(answer.prompt, depth=depth, **settings)
            assert real.token_ids == answer.tokens
            stats = real.stats
            predicted = (counts.steps, counts.drafted, counts.accepted)
            assert predicted == (stats.steps, stats.drafted, stats.accepted)
            widths = np.bincount(stats.widths, minlength=depth + 2)[1:]
            assert counts.by_depth.tolist() == widths.tolist()
            assert counts.switches == 1 + np.count_nonzero(np.diff(stats.widths))


@pytest.mark.parametrize("rule", ["coupled", "token", "block"])
@pytest.mark.parametrize("depth", [2, 5])
def test_the_model_takes_the_steps_predicted(
    engine: Engine, scored: Mapping[float, ScoredAnswers], rule: str, depth: int, drafter_path: Path
) -> None:
    lines = forecast_draft_model(scored[0.8], costs())
    predicted = next(each for each in lines if (each.rule, each.depth) == (rule, depth))
    tokens, steps = [], []
    with load(draft=str(drafter_path), threads=1, context=512, flash_attention=True) as real:
        for answer in scored[0.8].answers:
            made = [
                real.generate(
                    answer.prompt,
                    **{**options(0.8), "seed": seed, "rule": rule, "depth": depth},
                ).stats
                for seed in range(100, 104)
            ]
            tokens.append(sum(stats.generated_tokens for stats in made))
            steps.append(sum(stats.steps for stats in made))
    seen, estimate = ratio_interval(tokens, steps), predicted.tokens_per_step
    assert abs(seen.value - estimate.value) < WIDENED * max(
        estimate.high - estimate.value, seen.high - seen.value
    )


def test_a_draft_that_may_have_fallen_at_a_token_stands_no_better_behind_it() -> None:
    """However much likelier the next token is for the drafter: 1/2 of the drafts stand there."""
    log_p, log_q = np.log([0.5, 0.125, 0.5]), np.log([0.25, 0.5, 0.5])
    counts = expected_steps(ScoredText(log_p, log_q, np.zeros(3), limit=3), "block", 2)
    # One step with two tokens; where its draft falls at the first, one more, with the token left.
    assert (counts.steps, counts.drafted, counts.accepted) == pytest.approx((1.5, 2.5, 1.5))


def test_greedily_the_model_is_predicted_exactly(
    scored: Mapping[float, ScoredAnswers], drafter_path: Path
) -> None:
    lines = [*forecast_draft_model(scored[0.0], costs())]
    assert {each.rule for each in lines} == {"coupled"}
    predicted = lines[3]
    with load(draft=str(drafter_path), threads=1, context=512, flash_attention=True) as real:
        made = [
            real.generate(answer.prompt, depth=4, **options(0.0)).stats
            for answer in scored[0.0].answers
        ]
    tokens, steps = (
        sum(getattr(each, name) for each in made) for name in ("generated_tokens", "steps")
    )
    assert predicted.tokens_per_step.value == pytest.approx(tokens / steps, rel=0.02)


class PolicyOfKnownCosts:
    """An adaptive policy in a real decoder that learns the known costs instead of the real ones."""

    def __init__(self, adaptive: AdaptivePolicy, known: StepCosts) -> None:
        self.drafters = adaptive.drafters
        self.begin, self.keep = adaptive.begin, adaptive.keep
        self.plain_time, self.rests = adaptive.plain_time, False  # the text is alone
        self._adaptive = adaptive
        self._known = known
        self._plan = PLAIN_STEP
        self._unread = 0
        self.left = 0

    def decide(self, limit: Limit) -> Decision:
        self._plan = self._adaptive.decide(limit)
        self._unread = backlog(self._plan.drafter) if self._plan.drafter else 0
        return self._plan

    def learn(self, step: Step) -> None:
        # The simulation knows no tokens behind the end of an answer.
        step = replace(step, tokens=step.tokens[: self.left])
        self.left -= len(step.tokens)
        drafter, drafting = self._plan.drafter, 0.0
        if drafter:
            cost = self._known.drafters[drafter.name]
            cheap = drafter.name == "suffix"
            drafting = cost.of(1 if cheap else len(step.drafted))
            if step.drafted and not cheap:
                drafting += cost.catch_up_seconds(self._unread)
        seconds = self._known.passes[step.width] + len(step.tokens) * self._known.host + drafting
        self._adaptive.learn(replace(step, seconds=seconds, draft_seconds=drafting))


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_the_simulation_takes_the_steps_of_a_real_loop(
    engine: Engine, scored: Mapping[float, ScoredAnswers], temperature: float
) -> None:
    model = engine.drafter_set.drafters[-1]
    known = costs(drafts=0.04)
    known.drafters[model.name] = DrafterCost(0.04, 0.04)
    answers = scored[temperature].answers
    simulation = Simulation([Suffix(max_replaced=0), model], known, {}, clock=lambda: 0.0)
    predicted = [SimulatedRun.of(simulation.run(answer)) for answer in answers]
    # The real one, in the same world.
    other = Simulation([Suffix(max_replaced=0), model], known, {})
    policy = PolicyOfKnownCosts(other.policy, known)
    with engine.slots.own.new_context(GenerationConfig.of(**options(temperature))) as context:
        context.padded = other.policy.padded
        for answer, run in zip(answers, predicted, strict=True):
            stats, policy.left = Stats(), len(answer.tokens)
            held = context.truncate(context.shared(answer.prompt[:-1]))
            context.extend(answer.prompt[held:-1])
            loop = Decoder(
                context,
                policy,
                RULES["coupled"],
                answer.sampler,
                list(answer.prompt),
                stats,
                quick_first_token=True,
            )
            made = [each.id for each in itertools.islice(loop.run(LENGTH), len(answer.tokens))]
            assert made == answer.tokens
            seen = (stats.steps, stats.drafted, stats.accepted)
            assert (run.steps, run.drafted, run.accepted) == seen
    assert sum(run.tokens for run in predicted) > 1.5 * sum(run.steps for run in predicted)


def test_a_simulated_policy_is_told_what_it_takes_to_decide(
    scored: Mapping[float, ScoredAnswers],
) -> None:
    """So it rests where the real one would. Deciding and learning take a tick each."""
    ticks, [answer, *_] = itertools.count(), scored[TEMPERATURES[0]].answers
    simulation = Simulation(
        [Suffix(max_replaced=0)], costs(drafts=0.04), {}, clock=lambda: 0.001 * next(ticks)
    )
    steps = simulation.run(answer)
    plain = [step.deciding for step in steps if step.drafter is None]
    assert plain and plain == [pytest.approx(0.002)] * len(plain)
    assert simulation.policy.rows.deciding > 0


# What is best.


def every(engine: Engine, scored: ScoredAnswers, known: StepCosts) -> list[ConfigurationForecast]:
    lines = [forecast_plain(scored.answers, known), *forecast_model_free(scored, known)]
    lines += forecast_draft_model(scored, known)
    steps = simulated_auto(engine.drafter_set.drafters, scored, known)
    lines.append(forecast_auto(scored.answers, steps, known))
    return ranked(lines)


def test_where_drafts_cost_too_much_plain_is_best(
    engine: Engine, scored: Mapping[float, ScoredAnswers]
) -> None:
    best = every(engine, scored[0.8], costs(drafts=2, pass_more=1))[0]
    assert (best.drafter, best.rule, best.depth) == ("plain", None, None)
    assert best.speed_up.value == best.tokens_per_step.value == 1


def test_where_drafts_cost_nothing_the_model_is_best_and_deep(
    engine: Engine, scored: Mapping[float, ScoredAnswers]
) -> None:
    lines = every(engine, scored[0.8], costs(drafts=1e-4, pass_more=1e-4, host=0))
    values = [each.speed_up.value for each in lines]
    assert values == sorted(values, reverse=True) and values[0] > 2
    fixed = next(each for each in lines if each.depth)
    assert fixed.drafter == "pycode-4m-q4_0" and fixed.depth and fixed.depth > 8
    # There a step costs what a plain one does, so the speed-up is the tokens of a step.
    assert fixed.speed_up.value == pytest.approx(fixed.tokens_per_step.value, rel=0.02)


def test_a_prompt_that_is_asked_again_tells_nothing_new(
    scored: Mapping[float, ScoredAnswers],
) -> None:
    """The texts of a prompt count as one in the interval, as `plan --users` asks them in turn."""
    once = scored[0.8]
    twice = replace(
        once,
        answers=[*once.answers] * 2,
        drafts={name: [*drafts] * 2 for name, drafts in once.drafts.items()},
        scored=[*once.scored] * 2,
    )
    for each, again in (
        (forecast_plain(once.answers, costs()), forecast_plain(twice.answers, costs())),
        ([*forecast_model_free(once, costs())][3], [*forecast_model_free(twice, costs())][3]),
        ([*forecast_draft_model(once, costs())][3], [*forecast_draft_model(twice, costs())][3]),
    ):
        for name in ("speed_up", "tokens_per_step"):
            one, two = getattr(each, name), getattr(again, name)
            assert (two.value, two.low, two.high) == pytest.approx((one.value, one.low, one.high))


def test_dearer_drafts_are_shorter(scored: Mapping[float, ScoredAnswers]) -> None:
    depths = []
    for drafts in (0.01, 0.1, 0.3):
        lines = ranked([*forecast_draft_model(scored[0.8], costs(drafts=drafts))])
        depths.append(lines[0].depth or 0)
    assert depths[0] > depths[1] > depths[2]


def test_a_pass_of_another_width_costs_more(scored: Mapping[float, ScoredAnswers]) -> None:
    answer, copy = scored[0.8].answers[0], scored[0.8].drafts["suffix"][0]
    counts, known = count_steps(copy, 3), costs()
    same, other = (
        model_free_run(answer, counts, each, DrafterCost())
        for each in (known, replace(known, switch=0.5))
    )
    assert other.seconds - same.seconds == pytest.approx(0.5 * counts.switches)


def test_the_whole_measures_and_ranks(engine: Engine) -> None:
    said: list[str] = []
    found = forecast(engine, PROMPTS[:2], {**options(0.8), "max_tokens": 16}, said.append)
    assert found.answers == 2 and found.tokens <= 32
    assert {*range(1, DEEPEST + 2)} <= found.costs.passes.keys()
    assert all(seconds > 0 for seconds in found.costs.passes.values())
    assert found.costs.drafters.keys() == {*MODEL_FREE, "pycode-4m-q4_0"} >= found.rates.keys()
    assert len(found.configurations) == 2 + (len(MODEL_FREE) + 3) * len(DEPTHS)
    shown = [(each.drafter, each.rule) for each in found.best_depths()]
    assert len({*shown}) == len(shown) == 2 + len(MODEL_FREE) + 3
    assert len(said) == 4


@pytest.mark.slow
def test_of_two_draft_models_the_first_is_planned_and_a_note_names_the_other() -> None:
    said: list[str] = []
    draft = [str(PYCODE.drafter), str(PYCODE.target)]
    with load(draft=draft, threads=1, context=512) as engine:
        settings: GenerationOptions = {**options(0.8), "max_tokens": 8}
        found = forecast(engine, PROMPTS[:2], settings, said.append, users=[2])
    assert found.users and found.clairvoyant
    assert "pycode-7m-q8_0" not in found.costs.drafters
    [note] = [each for each in said if each.startswith("left out")]
    assert note == "left out: pycode-7m-q8_0; a plan tries only the first draft model"


def test_short_proposals_are_beginnings_of_long_ones(scored: Mapping[float, ScoredAnswers]) -> None:
    """What lets one pass over a text tell all depths."""
    for answer in scored[0.8].answers[:2]:
        for name, drafter in MODEL_FREE.items():
            long, short = (replay_drafts(drafter(), answer, depth) for depth in (DEEPEST, 3))
            assert np.array_equal(short.drafted, np.minimum(long.drafted, 3)), name
            assert np.array_equal(short.correct, np.minimum(long.correct, 3)), name
