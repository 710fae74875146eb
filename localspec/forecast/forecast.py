"""Forecast: the expected speed-up of every drafter, rule and depth, before any of them is used.

`replay` and `model_free` turn answers of the target into expected steps; `timing` measures what
passes and drafts take. Together they tell how long decoding the same answers would have taken.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from localspec.control.cost_profile import CostProfile
from localspec.control.drafter_cost import DrafterCost
from localspec.drafters.model_free import MODEL_FREE
from localspec.drafters.spec import AUTO
from localspec.engine.engine import Engine
from localspec.engine.prompt import Prompt
from localspec.forecast.against_clairvoyant import AgainstClairvoyant, against_clairvoyant
from localspec.forecast.answers import RecordedAnswer
from localspec.forecast.confidence import ConfidenceInterval, ratio_interval
from localspec.forecast.model_free import count_steps, fresh
from localspec.forecast.recorded_drafts import ReplayedDrafter
from localspec.forecast.replay import expected_steps
from localspec.forecast.scored_answers import Progress, ScoredAnswers, score_answers
from localspec.forecast.simulated_run import (
    SimulatedRun,
    SimulatedStep,
    draft_model_run,
    model_free_run,
    plain_run,
)
from localspec.forecast.simulation import Simulation
from localspec.forecast.timing import DEEPEST, StepCosts, measure_costs
from localspec.forecast.users import PLAIN, UsersForecast, forecast_users, world_of
from localspec.forecast.without_flash import WithoutFlash, without_flash
from localspec.generation_config import GenerationConfig, GenerationOptions
from localspec.loading.drafter_set import DrafterSet
from localspec.speculation.drafter import Drafter
from localspec.speculation.rules import RULES
from localspec.utils.format import counted

_COUPLED = "coupled"
DEPTHS = range(1, DEEPEST + 1)


@dataclass(frozen=True, slots=True)
class ConfigurationForecast:
    """The forecast for one way of decoding. Intervals are over prompts.

    rule, depth: None for plain decoding; depth is None for `auto` as well. speed_up: over plain
    decoding. acceptance: None without drafts.
    """

    drafter: str
    rule: str | None
    depth: int | None
    speed_up: ConfidenceInterval
    tokens_per_step: ConfidenceInterval
    acceptance: float | None
    seconds_per_step: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecasts of all configurations, the fastest first, and what they rest on.

    rates: as in ScoredAnswers. answers, tokens: how many were generated. clairvoyant: None
    where `auto` has no drafter. flash: None where it was not compared. users: of several users at
    once, those of each number together.
    """

    configurations: list[ConfigurationForecast]
    rates: dict[str, float]
    costs: StepCosts
    answers: int
    tokens: int
    clairvoyant: AgainstClairvoyant | None = None
    flash: WithoutFlash | None = None
    users: Sequence[UsersForecast] = ()

    @property
    def best(self) -> ConfigurationForecast:
        """The fastest configuration."""
        return self.configurations[0]

    def best_depths(self) -> list[ConfigurationForecast]:
        """For each drafter and rule the fastest depth only."""
        kept: dict[tuple[str, str | None], ConfigurationForecast] = {}
        for each in self.configurations:
            kept.setdefault((each.drafter, each.rule), each)
        return list(kept.values())


def forecast(
    engine: Engine,
    prompts: Sequence[Prompt],
    options: GenerationOptions,
    progress: Progress,
    *,
    users: Sequence[int] = (),
) -> Forecast:
    """Generate an answer to each prompt, try the drafters on it, and measure the costs.

    prompts: two at least, and one for each user. users: how many ask at once, each number by
    itself. options: how answers are sampled; the seed is that of the first answer,
    and each further one has the next.
    """
    drafting = engine.drafter_set
    engine.slots.threads_are_fixed = True
    with engine.slots.own.new_context(GenerationConfig.of(**options)) as context:
        scored = score_answers(engine, context, prompts, options, progress)
        progress("measuring what passes and drafts take")
        model_free = [drafter() for drafter in MODEL_FREE.values()]
        costs = measure_costs(context, scored.model, model_free, scored.answers, _forget(drafting))
    costs.drafters.update(_costs_of(engine, scored.recorded))
    _add_changes(costs, engine.slots.own.loaded.costs)
    longest = max((each.text for each in scored.answers), key=len)
    flash = without_flash(engine, longest, progress)
    found = [
        forecast_plain(scored.answers, costs),
        *forecast_model_free(scored, costs),
        *forecast_draft_model(scored, costs),
        *(each for head in scored.recorded for each in forecast_head(head, scored.answers, costs)),
    ]
    clairvoyant = None
    if scored.drafters:
        progress("simulating auto")
        steps = simulated_auto(scored.drafters, scored, costs)
        found.append(forecast_auto(scored.answers, steps, costs))
        names = [each.name for each in scored.drafters]
        clairvoyant = against_clairvoyant(names, steps, scored, costs)
    return Forecast(
        ranked(found),
        scored.rates,
        costs,
        len(scored.answers),
        sum(len(answer.tokens) for answer in scored.answers),
        clairvoyant,
        flash,
        _of_users(engine, scored, costs, users, progress) if users else (),
    )


def _of_users(
    engine: Engine,
    scored: ScoredAnswers,
    costs: StepCosts,
    users: Sequence[int],
    progress: Progress,
) -> list[UsersForecast]:
    progress("drafting at every token, for several users")
    world = world_of(engine, scored, costs, max(users))
    found = list[UsersForecast]()
    for count in users:
        progress(f"simulating {counted(count, 'user')}")
        found += forecast_users(world, count)
    return found


def _add_changes(costs: StepCosts, profile: CostProfile | None) -> None:
    """Let drafters cost what changes of their rows take, as measured at load."""
    for name, seconds in profile.drafters.items() if profile else ():
        if name in costs.drafters:
            costs.drafters[name].change = seconds.change


def _costs_of(engine: Engine, heads: Sequence[ReplayedDrafter]) -> dict[str, DrafterCost]:
    """What heads take, as measured when they were loaded."""
    if not (profile := engine.slots.own.loaded.costs):
        return {}
    return {head.name: profile.drafters[head.name].cost(profile.expected) for head in heads}


def _forget(drafters: DrafterSet) -> Callable[[], object]:
    caches = [*drafters.sequences.values()]
    return lambda: [cache.truncate(0) for cache in caches]


def forecast_plain(answers: Sequence[RecordedAnswer], costs: StepCosts) -> ConfigurationForecast:
    """Plain decoding, with which all others are compared."""
    runs = [plain_run(answer, costs) for answer in answers]
    return _configuration(PLAIN, answers, runs, costs, rule=None)


def forecast_model_free(scored: ScoredAnswers, costs: StepCosts) -> Iterable[ConfigurationForecast]:
    """Every depth of every model-free drafter; its tokens are certain, so all rules are equal."""
    for name, drafts in scored.drafts.items():
        for depth in DEPTHS:
            runs = [
                model_free_run(answer, count_steps(each, depth), costs, costs.drafters[name])
                for answer, each in zip(scored.answers, drafts, strict=True)
            ]
            yield _configuration(name, scored.answers, runs, costs, depth=depth)


def forecast_draft_model(
    scored: ScoredAnswers, costs: StepCosts
) -> Iterable[ConfigurationForecast]:
    """Every rule and depth of the draft model; in greedy decoding, all rules are equal."""
    if not scored.model:
        return
    name = scored.model.name
    greedy = scored.answers[0].sampler.params.temperature == 0
    for rule in [_COUPLED] if greedy else RULES:
        for depth in DEPTHS:
            counts = [expected_steps(each, rule, depth, first_plain=True) for each in scored.scored]
            runs = [
                draft_model_run(answer, each, costs, costs.drafters[name])
                for answer, each in zip(scored.answers, counts, strict=True)
            ]
            yield _configuration(name, scored.answers, runs, costs, rule=rule, depth=depth)


def forecast_head(
    head: ReplayedDrafter, answers: Sequence[RecordedAnswer], costs: StepCosts
) -> Iterable[ConfigurationForecast]:
    """Every depth of a drafter up to the recorded one; what other rules accept is not known."""
    replayed = [head.replayed(number) for number in range(len(answers))]
    deepest = max(int(each.drafted.max(initial=0)) for each in replayed)
    for depth in DEPTHS[: max(1, deepest)]:
        runs = [
            draft_model_run(
                answer,
                count_steps(each, depth, first_plain=head.reads_prompt),
                costs,
                costs.drafters[head.name],
            )
            for answer, each in zip(answers, replayed, strict=True)
        ]
        yield _configuration(head.name, answers, runs, costs, depth=depth)


def simulated_auto(
    drafters: Sequence[Drafter],
    scored: ScoredAnswers,
    costs: StepCosts,
) -> list[list[SimulatedStep]]:
    """The steps of the adaptive policy in each answer, starting from the rates known now."""
    instead: dict[str, Drafter] = {head.name: head for head in scored.recorded}
    own = [
        fresh(each) if each.name in MODEL_FREE else instead.get(each.name, each)
        for each in drafters
    ]
    simulation = Simulation(own, costs, scored.rates)
    return [simulation.run(answer) for answer in scored.answers]


def forecast_auto(
    answers: Sequence[RecordedAnswer], steps: Sequence[Sequence[SimulatedStep]], costs: StepCosts
) -> ConfigurationForecast:
    """The adaptive policy. steps: of each answer."""
    runs = [SimulatedRun.of(each) for each in steps]
    return _configuration(AUTO, answers, runs, costs)


def ranked(configurations: Sequence[ConfigurationForecast]) -> list[ConfigurationForecast]:
    """Sort by speed-up, the fastest first; of equal ones the simpler one, which comes first."""
    return sorted(configurations, key=lambda each: -each.speed_up.value)


def _configuration(
    drafter: str,
    answers: Sequence[RecordedAnswer],
    runs: Sequence[SimulatedRun],
    costs: StepCosts,
    *,
    rule: str | None = _COUPLED,
    depth: int | None = None,
) -> ConfigurationForecast:
    """The forecast from one run per answer."""
    prompts = [tuple(each.prompt) for each in answers]
    tokens = [run.tokens for run in runs]
    steps = [run.steps for run in runs]
    seconds = [run.seconds for run in runs]
    drafted = sum(run.drafted for run in runs)
    return ConfigurationForecast(
        drafter,
        rule,
        depth,
        ratio_interval([costs.plain * count for count in tokens], seconds, prompts),
        ratio_interval(tokens, steps, prompts),
        sum(run.accepted for run in runs) / drafted if drafted else None,
        sum(seconds) / sum(steps),
    )
