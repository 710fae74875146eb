"""What is left to gain: `auto`, the best fixed setting and the clairvoyant, in virtual time.

    python -m localspec.bench.experiments.left_to_gain --model TARGET --draft DRAFTER

The target writes the texts of each prompt set while the draft model drafts at every token. Then the
real policy, with `suffix` and the draft model, is played over them with the costs of passes that
were measured on several machines; so are fixed depths of either, of which the best on the set is
chosen afterwards. All figures are ratios to plain decoding, of all tokens of a set; the last
columns are what `auto` loses of its own time, by reason.

No policy reaches the clairvoyant. How far one can come is what the first table says: of tokens that
are right at random, all with the same known rate, nothing can be known but the best depth.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from localspec.bench.experiments.command_line import Table, add_model_options, argument_parser
from localspec.bench.experiments.simulated_drafter import COSTS
from localspec.bench.prompt_sets import SETS, Task, load_tasks
from localspec.control.base_costs import WIDEST
from localspec.control.drafter_cost import DrafterCost
from localspec.control.pass_costs import PassCosts
from localspec.control.width_changes import UNSETTLED
from localspec.drafters.suffix import Suffix
from localspec.engine.engine import Engine, load
from localspec.forecast.answers import RecordedAnswer
from localspec.forecast.clairvoyant import (
    MISSED,
    OTHER,
    READING,
    SHORT,
    WRONG,
    Clairvoyant,
    KnownDrafts,
    Losses,
    right_runs,
)
from localspec.forecast.model_free import ReplayedDrafts, count_steps, replay_drafts
from localspec.forecast.recorded_drafts import RecordedDraft, ReplayedDrafter, record_drafts
from localspec.forecast.simulated_run import SimulatedRun, draft_model_run, model_free_run
from localspec.forecast.simulation import Simulation
from localspec.forecast.timing import StepCosts
from localspec.generation_config import GenerationConfig, GenerationOptions
from localspec.stats import Stats

_TEMPERATURES = 0.0, 0.8
# The deepest draft that is recorded, and tried as a fixed depth.
_DEEPEST = 16
# In plain passes of one row: a token of the prompt that the drafter reads, and a proposal of
# `suffix`. The host's own time is left out.
_READING, _COPYING = 0.005, 0.0001
# The rates of random tokens, and how many of them.
_RATES, _RANDOM = (0.5, 0.7, 0.8, 0.9, 0.95), 4000
_REASONS = (WRONG, SHORT, MISSED, OTHER, READING)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The texts of a prompt set, what the draft model drafted at each token, and what it copies."""

    answers: list[RecordedAnswer]
    model: ReplayedDrafter
    copies: list[ReplayedDrafts]

    @property
    def drafted(self) -> list[ReplayedDrafts]:
        """The lengths of the model's drafts, by text."""
        return [self.model.replayed(number) for number in range(len(self.answers))]


@dataclass(frozen=True, slots=True)
class Gains:
    """Speeds over plain decoding. fixed: of the best setting, which `setting` names."""

    auto: float
    fixed: float
    setting: str
    clairvoyant: float
    losses: Losses


def record(engine: Engine, tasks: Sequence[Task], options: GenerationOptions) -> Recorded:
    """Write the texts. options: the seed is that of the first text, and each has the next."""
    [model] = [each for each in engine.drafter_set.drafters if not each.traits.cheap]
    answers: list[RecordedAnswer] = []
    drafts: list[list[RecordedDraft]] = []
    first = GenerationConfig.of(**options)
    for number, task in enumerate(tasks):
        asked: GenerationOptions = {**options, "seed": first.seed + number}
        prompt = engine.stream(task.prompt_for(engine), **asked).prompt
        tokens, recorded = record_drafts(engine, model, prompt, tokens=_DEEPEST, **asked)
        sampler = engine.slots.own.sampler(GenerationConfig.of(**asked), len(prompt))
        answers.append(RecordedAnswer(list(prompt), tokens, first.max_tokens, sampler, Stats()))
        drafts.append(recorded)
    copies = [replay_drafts(Suffix(), each, WIDEST - 1) for each in answers]
    return Recorded(answers, ReplayedDrafter(model, answers, drafts), copies)


def costs_of(
    passes: Mapping[int, float], draft: float, model: str, change: float = 0.0
) -> StepCosts:
    """Costs in plain passes. draft: of a drafted token of the model. change: see WidthChanges."""
    drafters = {
        Suffix.name: DrafterCost(_COPYING),
        model: DrafterCost(draft, draft, _READING, change=change),
    }
    return StepCosts(dict(passes), change, 0.0, drafters, UNSETTLED if change else 1)


def gains(recorded: Recorded, costs: StepCosts) -> Gains:
    """Play every way of decoding over the texts; one policy, which learns from text to text."""
    answers, model = recorded.answers, recorded.model
    simulation = Simulation([Suffix(max_replaced=0), model], costs, {})
    losses = Losses()
    for answer, drafted, copies in zip(answers, recorded.drafted, recorded.copies, strict=True):
        reading = costs.drafters[model.name].reading_seconds(len(answer.prompt))
        known = {
            Suffix.name: KnownDrafts(costs.drafters[Suffix.name], True, copies.correct),
            model.name: KnownDrafts(costs.drafters[model.name], False, drafted.correct, reading),
        }
        best = Clairvoyant(len(answer.tokens), answer.limit, costs, known)
        losses.add_all(best.losses(simulation.run(answer)))
    plain = sum(len(answer.tokens) for answer in answers) * costs.plain
    seconds, setting = min(_fixed(recorded, costs))
    return Gains(plain / losses.seconds, plain / seconds, setting, plain / losses.least, losses)


def _fixed(recorded: Recorded, costs: StepCosts) -> Iterator[tuple[float, str]]:
    """The seconds of all texts at every fixed depth of either drafter."""
    name = recorded.model.name
    for depth in range(1, _DEEPEST + 1):
        copied: list[SimulatedRun] = []
        drafted: list[SimulatedRun] = []
        for answer, copies, model in zip(
            recorded.answers, recorded.copies, recorded.drafted, strict=True
        ):
            steps = count_steps(copies, depth)
            copied.append(model_free_run(answer, steps, costs, costs.drafters[Suffix.name]))
            steps = count_steps(model, depth, first_plain=True)
            drafted.append(draft_model_run(answer, steps, costs, costs.drafters[name]))
        yield sum(run.seconds for run in copied), f"{Suffix.name} {depth}"
        yield sum(run.seconds for run in drafted), f"model {depth}"


def known_rate(passes: Mapping[int, float], draft: float, rate: float) -> tuple[float, float]:
    """Speeds over plain decoding at the best depth, and of the clairvoyant, of random tokens."""
    costs = costs_of(passes, draft, "model")
    cost, seconds = costs.drafters["model"], PassCosts(passes).seconds
    depths = range(1, WIDEST)
    best = max((1 - rate ** (k + 1)) / (1 - rate) / (seconds(k + 1) + cost.of(k)) for k in depths)
    right = right_runs(np.random.default_rng(0).random(_RANDOM) < rate)
    drafts = {"model": KnownDrafts(cost, False, right)}
    return max(1.0, best), _RANDOM / Clairvoyant(_RANDOM, _RANDOM, costs, drafts).seconds


def _print_known_rates(machines: Sequence[str], draft: float) -> None:
    table = Table(("costs", "<7"), ("rate", "4.2f"), ("best", "5.2f"), ("clairv.", "7.2f"),
                  ("share", "5.2f"))  # fmt: skip
    for machine in machines:
        for rate in _RATES:
            best, clairvoyant = known_rate(COSTS[machine], draft, rate)
            table.print_row(machine, rate, best, clairvoyant, best / clairvoyant)
    print()


def main() -> None:
    """Write, play, and print a row for each set, temperature and machine."""
    options = _options()
    _print_known_rates(options.costs, options.cost)
    ways = [("set", "<9"), ("T", "4.1f"), ("costs", "<7"), ("auto", "5.2f"), ("fixed", "5.2f")]
    found = [("", "<10"), ("clairv.", "7.2f"), ("share", "5.2f")]
    table = Table(*ways, *found, *((reason.split()[0], "7.1%") for reason in _REASONS))
    with load(options.model, ["suffix", str(options.draft)], threads=options.threads) as engine:
        for set_ in options.sets:
            tasks = load_tasks([set_], None)
            for temperature in _TEMPERATURES:
                asked: GenerationOptions = {
                    "max_tokens": options.tokens,
                    "temperature": temperature,
                    "seed": 1,
                    "ignore_eos": True,
                }
                recorded = record(engine, tasks, asked)
                for machine in options.costs:
                    passes, change = COSTS[machine], options.change
                    known = costs_of(passes, options.cost, recorded.model.name, change)
                    its = gains(recorded, known)
                    lost = (its.losses.by_reason.get(each, 0.0) for each in _REASONS)
                    table.print_row(
                        set_,
                        temperature,
                        machine,
                        its.auto,
                        its.fixed,
                        its.setting,
                        its.clairvoyant,
                        its.losses.share,
                        *(each / its.losses.seconds for each in lost),
                    )


def _options() -> argparse.Namespace:
    parser = argument_parser(__file__, __doc__)
    add_model_options(parser)
    parser.add_argument("--draft", required=True, type=Path, help="the draft model")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--cost", type=float, default=0.05, help="of a drafted token, in passes")
    parser.add_argument("--change", type=float, default=0.0, help="of the rows, in plain passes")
    parser.add_argument("--sets", nargs="*", default=[*SETS][:5], choices=SETS)
    parser.add_argument("--costs", nargs="*", default=[*COSTS], choices=COSTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
