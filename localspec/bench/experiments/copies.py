"""What the copies of `suffix` gain behind differences and from earlier chats, in virtual time.

    python -m localspec.bench.experiments.copies [--model TARGET] [--set NAME ...]

`suffix` plays over known texts with the real policy and the costs of passes that were measured on
several machines. Edits and answers: once it copies after the longest match alone, once it also goes
on behind differences (`drafters.passage`). In an edit a source file or JSON records are the prompt,
and the edited ones the answer, in tokens of the target; answers are those that the target writes to
prompts of `bench`. Chats: once without and once with earlier chats to copy from, alone and beside a
draft model; and all of them dealt out to several slots, which copy once from their own chats alone
and once from those of all. At a temperature also from chats of another slot (or of all), once as
they are, and once drawn anew; and so that each answer is a run of its own, which copies from those
of earlier runs (`--remember`). The gain is what the second way saves; the interval is over texts.
"""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from localspec.bench.experiments.command_line import Table, add_model_options, argument_parser
from localspec.bench.experiments.edited_texts import (
    EDITS,
    RECORDS,
    EditedText,
    edited_files,
    edited_folders,
    edited_records,
)
from localspec.bench.experiments.recorded_drafter import RecordedDrafter, Recording, recorded
from localspec.bench.experiments.simulated_drafter import COSTS
from localspec.bench.prompt_sets import SETS, TERMINAL, bundled_tasks, default_sets, read_tasks
from localspec.control.drafter_cost import DrafterCost
from localspec.distillation.prompt_set import general_prompts, terminal_prompts
from localspec.drafters.earlier_texts import EarlierTexts
from localspec.drafters.suffix import Suffix
from localspec.engine.engine import Engine, load
from localspec.engine.prompt import Prompt
from localspec.forecast.answers import RecordedAnswer, write_answer
from localspec.forecast.confidence import ratio_interval
from localspec.forecast.simulated_run import SimulatedRun
from localspec.forecast.simulation import Simulation
from localspec.forecast.timing import StepCosts
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Drafter
from localspec.stats import Stats

MACHINES = "Q4_0 A", "F16 A", "GPU"
_TEMPERATURES = 0.0, 0.8
# In plain passes of one row: a drafted token, a token of the prompt that the draft model reads, and
# a proposal of `suffix`. The host's own time is left out.
_DRAFT, _READING, _COPYING = 0.05, 0.005, 0.0001
_MODEL = "model"


def played(
    machine: str,
    suffix: Suffix,
    answers: Sequence[RecordedAnswer],
    beside: Sequence[Recording] = (),
) -> list[float]:
    """The seconds of each answer; the policy and the drafters learn from one to the next.

    beside: what a draft model said in these answers; without it no draft model is beside `suffix`.
    """
    slot = _Slot(machine, suffix, has_model=bool(beside))
    return [
        slot.write(answer, beside[place] if beside else None)
        for place, answer in enumerate(answers)
    ]


def _played_behind(
    machine: str,
    answers: Sequence[RecordedAnswer],
    beside: Sequence[Recording],
    earlier: EarlierTexts,
    *,
    runs: bool,
) -> list[float]:
    """The seconds of each answer, which copies from earlier texts.

    runs: each answer is a run of its own, and what it has learnt is gone with it.
    """
    if not runs:
        return played(machine, Suffix(earlier=earlier, max_replaced=0), answers, beside)
    return [
        _played_behind(machine, [answer], beside[place : place + 1], earlier, runs=False)[0]
        for place, answer in enumerate(answers)
    ]


def played_in_slots(
    machine: str,
    answers: Sequence[RecordedAnswer],
    beside: Sequence[Recording] = (),
    *,
    slots: int,
    shared: bool = True,
    drawn: bool = True,
) -> list[float]:
    """The seconds of each answer, where slots take turns; shared: they copy from each other.

    drawn: what they copy from each other is drawn anew.
    """
    earlier = EarlierTexts()
    every = [
        _Slot(machine, Suffix(earlier=earlier if shared else None), has_model=bool(beside))
        for _ in range(slots)
    ]
    seconds = []
    for place, answer in enumerate(answers):
        slot = every[place % slots]
        seconds.append(slot.write(answer, beside[place] if beside else None))
        earlier.add(answer.text, slot.suffix.drawn_from(answer.text) if drawn else None)
    return seconds


class _Slot:
    """Drafters and what is known of them, from answer to answer."""

    def __init__(self, machine: str, suffix: Suffix, *, has_model: bool) -> None:
        self.suffix = suffix
        self._model = RecordedDrafter(_MODEL)
        drafters: list[Drafter] = [suffix, self._model] if has_model else [suffix]
        self._simulation = Simulation(drafters, _step_costs(machine), {})

    def write(self, answer: RecordedAnswer, drafted: Recording | None) -> float:
        """The seconds of an answer. drafted: what the draft model said in it, if there is one."""
        if drafted:
            self._model.record(drafted)
        return SimulatedRun.of(self._simulation.run(answer)).seconds


def _step_costs(machine: str) -> StepCosts:
    """The costs of a machine of COSTS, with those of a draft model and of `suffix`."""
    drafters = {
        _MODEL: DrafterCost(_DRAFT, _DRAFT, _READING),
        Suffix.name: DrafterCost(_COPYING),
    }
    return StepCosts(dict(COSTS[machine]), 0.0, 0.0, drafters)


def _suffix(*, differences: bool = True, past: Sequence[Sequence[int]] = ()) -> Suffix:
    # No drafter may copy from the answers played before: some texts are edits of the same file.
    return Suffix(differences=differences, earlier=EarlierTexts(past), max_replaced=0)


def _told(past: Sequence[RecordedAnswer], *, drawn: bool) -> EarlierTexts:
    """These answers for other drafters to copy from, as those of an earlier run or another slot.

    drawn: what is copied from them is drawn anew.
    """
    earlier = EarlierTexts(kept=sum(len(each.text) + 1 for each in past))
    writer, _reader = (Suffix(earlier=earlier) for _ in range(2))
    for each in past:
        writer.begin(each.prompt)
        writer.observe(each.outcome(0, len(each.tokens)))
        earlier.add(each.text, writer.drawn_from(each.text) if drawn else None)
    return earlier


def _known(engine: Engine, texts: Iterable[EditedText], most: int) -> list[RecordedAnswer]:
    """The edited texts as answers of a target at temperature 0."""
    return [known_answer(engine, each.prompt, each.after) for each in islice(texts, most)]


def known_answer(engine: Engine, prompt: str, text: str) -> RecordedAnswer:
    """A text as the answer of a target at temperature 0."""
    sampler = Sampler(SamplingParams(temperature=0.0), Noise(0))
    asked, tokens = (engine.model.tokenize(each, add_special=False) for each in (prompt, text))
    return RecordedAnswer(asked, tokens, len(tokens), sampler, Stats())


def _written(
    engine: Engine,
    prompt: Prompt,
    seed: int,
    temperature: float,
    tokens: int,
    *,
    long: bool = False,
) -> RecordedAnswer:
    """The target's answer, written plainly; a long one has exactly so many tokens."""
    answer, _ = write_answer(
        engine,
        engine.slots.own.target,
        prompt,
        max_tokens=tokens,
        seed=seed,
        temperature=temperature,
        ignore_eos=long,
    )
    return answer


def _answers(
    engine: Engine, name: str, temperature: float, tokens: int, *, long: bool = False
) -> list[RecordedAnswer]:
    """The target's answers to the prompts of a set."""
    return [
        _written(engine, task.prompt_for(engine), task.number, temperature, tokens, long=long)
        for task in bundled_tasks(name)
    ]


def _prompts(target: Path, file: Path | None) -> list[Prompt]:
    """The prompts of a file; without one, those that a target's drafters are trained with."""
    if file:
        tasks = read_tasks(file, "--file")
        return [task.content if isinstance(task.content, str) else list(task.content)
                for task in tasks]  # fmt: skip
    own = default_sets(target) == [TERMINAL]
    texts = terminal_prompts() if own else general_prompts()
    return [[{"role": "user", "content": text}] for text in texts]


def _texts(
    engine: Engine, options: argparse.Namespace
) -> Iterator[tuple[str, list[RecordedAnswer]]]:
    """Yield the name of each kind of text, and the answers."""
    for name in options.set:
        if name == RECORDS:
            yield f"edit: {name}", _known(engine, edited_records(), options.texts)
        elif name in EDITS:
            yield f"edit: {name}", _known(engine, edited_files(name), options.texts)
        else:
            for temperature in _TEMPERATURES:
                title = f"{name} at {temperature}"
                yield title, _answers(engine, name, temperature, options.tokens)
    for name in options.long:
        for temperature in _TEMPERATURES:
            answers = _answers(engine, name, temperature, options.long_tokens, long=True)
            yield f"long {name} at {temperature}", answers
    if options.versions:
        yield "versions", _known(engine, edited_folders(*options.versions), options.texts)


def _options() -> argparse.Namespace:
    parser = argument_parser(__file__, __doc__)
    add_model_options(parser)
    known = [*EDITS, RECORDS, *SETS]
    parser.add_argument("--set", nargs="*", choices=known, default=known, metavar="NAME")
    parser.add_argument("--long", nargs="*", choices=SETS, default=[], metavar="NAME",
                        help="sets that are written as long answers, too")  # fmt: skip
    parser.add_argument("--versions", nargs=2, type=Path, metavar="FOLDER",
                        help="Python files before and after, of the same names")  # fmt: skip
    parser.add_argument("--draft", type=Path, help="a draft model, to measure chats")
    parser.add_argument("--file", type=Path, help="of the chats' prompts, as for bench --prompts")
    parser.add_argument("--earlier", type=int, default=36, help="chats to copy from")
    parser.add_argument("--chats", type=int, default=40, help="other chats, to be measured")
    parser.add_argument("--slots", type=int, default=4, help="to which chats are dealt out")
    parser.add_argument("--texts", type=int, default=40, help="the most edits of a kind")
    parser.add_argument("--tokens", type=int, default=256, help="the most of an answer")
    parser.add_argument("--long-tokens", type=int, default=1000, help="of a long answer")
    parser.add_argument("--costs", nargs="+", choices=COSTS, default=MACHINES, metavar="NAME")
    options = parser.parse_args()
    if min(options.texts, options.chats) < 2 or min(options.earlier, options.slots) < 1:
        parser.error("--texts and --chats must be 2 or more, --earlier and --slots 1 or more")
    if min(options.tokens, options.long_tokens) < 1:
        parser.error("--tokens and --long-tokens must be 1 or more")
    return options


class Gains:
    """A table: a row per kind of text and machine, with both ways as x plain."""

    def __init__(self) -> None:
        self._table = Table(
            ("texts", "<36"),
            ("number", "6d"),
            ("tokens", "8,"),
            ("costs", "<7"),
            ("without", "7.2f"),
            ("with", "7.2f"),
            ("gain", "+7.1%"),
            ("from", "+7.1%"),
            ("to", "+7.1%"),
        )

    def print_row(
        self,
        title: str,
        answers: Sequence[RecordedAnswer],
        machine: str,
        before: Sequence[float],
        after: Sequence[float],
    ) -> None:
        """Print a row. before, after: the seconds of each answer, without and with more copies."""
        tokens = sum(len(each.tokens) for each in answers)
        gain = ratio_interval(before, after)
        ends = (each - 1 for each in (gain.value, gain.low, gain.high) if each)
        speeds = (tokens / sum(each) for each in (before, after))
        self._table.print_row(title, len(answers), tokens, machine, *speeds, *ends)


def _print_differences(gains: Gains, options: argparse.Namespace) -> None:
    with load(options.model, "none", threads=options.threads) as engine:
        for title, answers in _texts(engine, options):
            for machine in options.costs:
                before, after = (
                    played(machine, _suffix(differences=each), answers) for each in (False, True)
                )
                gains.print_row(title, answers, machine, before, after)


def _print_chats(gains: Gains, options: argparse.Namespace) -> None:
    prompts = _prompts(options.model, options.file)[: options.earlier + options.chats]
    with load(options.model, str(options.draft), threads=options.threads) as engine:
        [small] = engine.drafter_set.sequences.values()
        for temperature in _TEMPERATURES:
            written = [
                _written(engine, prompt, seed, temperature, options.tokens)
                for seed, prompt in enumerate(prompts)
            ]
            past = written[: options.earlier]
            answers = written[options.earlier :]
            measured = [recorded(small, each, engine.model.n_vocab) for each in answers]
            for machine in options.costs:
                for beside in ([], measured):
                    drafters = f"suffix,{_MODEL}" if beside else "suffix"
                    before, after = (
                        played(machine, _suffix(past=each), answers, beside)
                        for each in ([], [one.text for one in past])
                    )
                    title = f"at {temperature}, {drafters}"
                    gains.print_row(f"chats {title}", answers, machine, before, after)
                    if temperature:
                        for kind in ("chats", "runs"):
                            behind = partial(
                                _played_behind, machine, answers, beside, runs=kind == "runs"
                            )
                            before, after = (
                                behind(_told(past, drawn=drawn)) for drawn in (False, True)
                            )
                            gains.print_row(
                                f"drawn, {kind} {title}", answers, machine, before, after
                            )
                    if options.slots < 2:
                        continue
                    in_slots = partial(
                        played_in_slots, machine, answers, beside, slots=options.slots
                    )
                    ways = in_slots(shared=False), in_slots(drawn=False), in_slots()
                    title = f"{options.slots} slots {title}"
                    gains.print_row(title, answers, machine, ways[0], ways[-1])
                    if temperature:
                        gains.print_row(f"drawn, {title}", answers, machine, *ways[1:])


def main() -> None:
    """Print the table of differences, and with `--draft` that of chats."""
    options = _options()
    gains = Gains()
    _print_differences(gains, options)
    if options.draft:
        _print_chats(gains, options)


if __name__ == "__main__":
    main()
