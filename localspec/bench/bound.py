"""Bound: what one who knew the right drafts would gain, and where `auto` loses the rest.

The texts that `auto` wrote are written once more, plainly, while each drafter drafts at every
token: this tells which drafts were right. With what passes and drafts took, as `auto` learnt it,
follows the least time that any choice of drafters and depths could have taken
(forecast/clairvoyant.py), and each step of `auto` is compared with it. All times are in plain steps
of the same text and round, as a machine that is busier slows these too.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from localspec.bench.configurations import PLAIN, LoadedConfiguration
from localspec.bench.prompt_sets import Task
from localspec.bench.runner import Run
from localspec.bench.summary import ALL
from localspec.bench.workload import Workload
from localspec.control.base_costs import WIDEST
from localspec.control.cost_model import CostModel
from localspec.control.drafter_cost import DrafterCost
from localspec.drafters.model_free import MODEL_FREE
from localspec.drafters.spec import AUTO
from localspec.engine.engine import Engine
from localspec.forecast.against_clairvoyant import AgainstClairvoyant
from localspec.forecast.answers import RecordedAnswer
from localspec.forecast.clairvoyant import Clairvoyant, KnownDrafts, Losses, right_runs
from localspec.forecast.clairvoyant_text import clairvoyant_lines, clairvoyant_record, doubt
from localspec.forecast.confidence import ConfidenceInterval, ratio_interval
from localspec.forecast.model_free import replay_drafts
from localspec.forecast.recorded_drafts import ReplayedDrafter, must_be_recorded, record_drafts
from localspec.forecast.simulated_run import SimulatedStep
from localspec.forecast.timing import StepCosts
from localspec.generation_config import GenerationConfig, GenerationOptions
from localspec.loading.drafter_set import SequenceDrafter
from localspec.stats import Stats, StepRecord


@dataclass(frozen=True, slots=True)
class Bound:
    """The least time that the drafters of `auto` allow on a prompt set, or on all of them (`all`).

    texts: how many texts of `auto` were compared. auto: its speed-up over plain decoding on these.
    """

    set: str
    texts: int
    auto: float
    clairvoyant: AgainstClairvoyant

    @property
    def lines(self) -> list[str]:
        """What it says, for people."""
        measured = (
            f"auto {self.auto:.2f} x plain over all tokens (the table has the mean of the prompts)"
        )
        doubts = doubt(self.clairvoyant)
        first, *others = [doubts] if doubts else clairvoyant_lines(self.clairvoyant)
        return [f"{self.set}: {measured}; {first}", *(f"  {line}" for line in others)]

    def as_dict(self) -> dict[str, Any]:
        """What it says, for programs."""
        beside = clairvoyant_record(self.clairvoyant)
        reliable = not doubt(self.clairvoyant)
        return {
            "set": self.set,
            "texts": self.texts,
            "auto": self.auto,
            **beside,
            "reliable": reliable,
        }


@dataclass(frozen=True, slots=True)
class _Text:
    """A text of `auto` beside the clairvoyant, in plain steps: it has `tokens` of them."""

    task: int
    tokens: int
    losses: Losses


def bounds(
    configurations: Sequence[LoadedConfiguration],
    tasks: Sequence[Task],
    workload: Workload,
    runs: Sequence[Run],
    *,
    cancelled: Callable[[], bool] = lambda: False,
    progress: Callable[[str], object] = lambda _: None,
) -> list[Bound]:
    """Return the bound of each prompt set, and that of all; none without `auto`, or if cancelled.

    runs: of all configurations, under a rule that keeps the text. Texts of other rounds than the
    first are compared where they are the same, as in greedy decoding. progress: is told what is
    done.
    """
    auto = next((each for each in configurations if each.name == AUTO), None)
    costs = auto.engine.slots.own.loaded.policies.costs if auto else None
    if auto is None or costs is None:
        return []
    if not all(each.traits.cheap for each in auto.engine.drafter_set.drafters):
        progress("writing the texts once more, to see which drafts are right")
    texts: list[_Text] = []
    for task, prompt in enumerate(workload.prompts):
        if cancelled():
            return []
        own = [run for run in runs if run.task == task]
        asked = cast("GenerationOptions", workload.options_of(task))
        texts += _texts(auto.engine, costs, prompt, asked, own, cancelled=cancelled)
    if cancelled():
        return []
    sets = list(dict.fromkeys(task.set for task in tasks))
    names = [*sets, ALL] if len(sets) > 1 else sets
    found = [
        _bound(name, [each for each in texts if name in (ALL, tasks[each.task].set)])
        for name in names
    ]
    return [each for each in found if each]


def _bound(name: str, texts: Sequence[_Text]) -> Bound | None:
    if not texts:
        return None
    losses = Losses()
    for each in texts:
        losses.add_all(each.losses)
    # All texts after a prompt are the same, and have the same bound.
    prompts = {each.task: (each.tokens, each.losses.least) for each in texts}
    tokens, least = zip(*prompts.values(), strict=True)
    value = sum(tokens) / sum(least)
    alone = ConfidenceInterval(value, value, value)
    speed_up = ratio_interval(tokens, least) if len(prompts) > 1 else alone
    auto = sum(each.tokens for each in texts) / losses.seconds
    return Bound(name, len(texts), auto, AgainstClairvoyant(speed_up, losses))


def _texts(
    engine: Engine,
    costs: CostModel,
    prompt: Sequence[int],
    options: GenerationOptions,
    runs: Sequence[Run],
    *,
    cancelled: Callable[[], bool],
) -> Iterator[_Text]:
    """Compare the texts of `auto` after one prompt. runs: of all configurations after it."""
    plain = {run.round: run for run in runs if run.configuration == PLAIN}
    mine = [run for run in runs if run.configuration == AUTO and run.round in plain]
    if 0 not in plain:
        return
    tokens = plain[0].token_ids
    alike = [run for run in mine if run.token_ids == tokens]
    if not alike:
        return
    unit = costs.passes.seconds(1)
    names = engine.drafter_set.names
    known = StepCosts(
        {rows: costs.passes.seconds(rows) / unit for rows in range(1, WIDEST + 1)},
        0.0,
        0.0,
        {name: _in_units(costs.drafter(name), unit) for name in names},
    )
    settings = GenerationConfig.of(**options)
    sampler = engine.slots.own.sampler(settings, len(prompt))
    answer = RecordedAnswer(list(prompt), tokens, settings.max_tokens, sampler, Stats())
    drafts = {
        each.drafter.name: _known_drafts(engine, each, answer, known, options, cancelled=cancelled)
        for each in engine.drafter_set.members
    }
    best = Clairvoyant(len(tokens), answer.limit, known, drafts)
    cheap = {name for name, each in drafts.items() if each.cheap}
    for run in alike:
        partner = plain[run.round].stats
        step = sum(each.seconds for each in partner.records) / len(tokens)
        steps = _Steps(known, cheap, step).of(run.stats.records)
        yield _Text(run.task, len(tokens), best.losses(steps))


def _in_units(cost: DrafterCost, unit: float) -> DrafterCost:
    """The cost of a drafter in plain steps."""
    return DrafterCost(cost.of(1) / unit, (cost.of(2) - cost.of(1)) / unit, cost.reading / unit)


def _known_drafts(
    engine: Engine,
    member: SequenceDrafter,
    answer: RecordedAnswer,
    costs: StepCosts,
    options: GenerationOptions,
    *,
    cancelled: Callable[[], bool],
) -> KnownDrafts:
    """How far a drafter's drafts are right at each token of an answer."""
    drafter = member.drafter
    cost = costs.drafters[drafter.name]
    if drafter.traits.cheap:
        fresh = MODEL_FREE[drafter.name]()
        return KnownDrafts(cost, True, replay_drafts(fresh, answer, WIDEST - 1).correct)
    # A draft model draws the same token at a place wherever the draft began.
    whole = must_be_recorded(member)
    depth = None if whole else 1
    _, drafts = record_drafts(
        engine, drafter, answer.prompt, tokens=depth, cancelled=cancelled, **options
    )
    correct = ReplayedDrafter(drafter, [answer], [drafts]).replayed(0).correct
    reading = cost.reading_seconds(len(answer.prompt)) if drafter.traits.backlog else 0.0
    return KnownDrafts(cost, False, correct if whole else right_runs(correct > 0), reading)


@dataclass(slots=True)
class _Steps:
    """Turns steps that were taken into those that the clairvoyant is compared with, in plain steps.

    costs: in plain steps. cheap: the names of drafters whose drafts cost the same at any depth.
    plain: the seconds of a plain step in the same round.
    """

    costs: StepCosts
    cheap: set[str]
    plain: float

    def of(self, records: Sequence[StepRecord]) -> list[SimulatedStep]:
        """The steps of one text."""
        begun: set[str] = set()
        return [self._step(each, begun) for each in records]

    def _step(self, record: StepRecord, begun: set[str]) -> SimulatedStep:
        """One step. begun: the drafters that have read the prompt."""
        took, drafting = record.seconds / self.plain, record.draft_seconds / self.plain
        expected = reading = deciding = 0.0
        if record.drafter is None:
            deciding = drafting
        elif record.drafter in self.cheap:
            expected = self.costs.drafters[record.drafter].first
        elif record.proposed:
            expected = self.costs.drafters[record.drafter].of(record.proposed)
            if record.drafter not in begun:
                reading = max(0.0, drafting - expected)
            begun.add(record.drafter)
        reading += record.reading / self.plain
        seconds = self.costs.pass_of(record.rows) + expected + reading
        return SimulatedStep(
            record.drafter,
            record.verified,
            record.accepted,
            record.tokens,
            seconds,
            reading,
            0.0,
            deciding,
            took - seconds - deciding,
        )
