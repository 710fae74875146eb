"""What a draft model that learns while it drafts would gain, in virtual time.

    python -m localspec.bench.experiments.learning --model TARGET --draft DRAFTER

The target's rows, which verification computes anyway, tell what the drafter should have said. Each
correction of the drafter's logits (`corrections`) learns from them in some chats. Then it drafts
other chats, and answers that are made to be long, where it goes on learning. The texts are written
once and read by both models; then every correction is played over them: at a fixed depth (tokens
per step), and with the real policy and the costs of passes that were measured on several machines,
with the draft model alone and beside `suffix`. The gain is over the same drafters without a
correction; the interval is over texts.
"""

import argparse
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.bench.experiments.command_line import Table, add_model_options, argument_parser
from localspec.bench.experiments.corrections import Correction, all_corrections
from localspec.bench.experiments.recorded_drafter import RecordedDrafter, Recording
from localspec.bench.experiments.simulated_drafter import COSTS
from localspec.bench.prompt_sets import TERMINAL, default_sets, read_tasks
from localspec.control.drafter_cost import DrafterCost
from localspec.distillation.prompt_set import general_prompts, terminal_prompts
from localspec.drafters.suffix import Suffix
from localspec.engine.engine import Engine, load
from localspec.engine.prompt import Prompt
from localspec.forecast.answers import Answer
from localspec.forecast.confidence import ratio_interval
from localspec.forecast.simulated_run import SimulatedRun
from localspec.forecast.simulation import Simulation
from localspec.forecast.timing import StepCosts
from localspec.generation_config import GenerationConfig
from localspec.llama.sequence import KVSequence
from localspec.speculation.draft import MAX_DEPTH
from localspec.speculation.drafter import Drafter, Limit, Outcome
from localspec.speculation.passes import Pass, direct
from localspec.utils.tokens import common_prefix

_TEMPERATURES = 0.0, 0.8
_DEPTH = 4
_COSTS = "F16 A", "GPU"
# In plain passes of one row: a drafted token, a token of the prompt that the drafter reads, and a
# proposal of `suffix`. The host's own time is left out.
_DRAFT, _READING, _COPYING = 0.05, 0.005, 0.0001
MODEL = "model"


@dataclass(slots=True)
class Played:
    """A correction with the drafters beside it, played over texts; seconds by text.

    machine: of COSTS; None for a fixed depth, whose seconds are steps.
    """

    correction: Correction
    machine: str | None
    suffix: bool
    seconds: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    _simulation: Simulation | None = None
    _drafter: RecordedDrafter = field(init=False)

    def __post_init__(self) -> None:
        self._drafter = RecordedDrafter(MODEL, self.correction)
        if self.machine:
            drafters: list[Drafter] = [self._drafter]
            if self.suffix:
                # No drafter may copy from earlier answers: the same prompts are asked twice.
                drafters.insert(0, Suffix(max_replaced=0))
            self._simulation = Simulation(drafters, step_costs(self.machine), {})

    def play(self, recording: Recording) -> None:
        """Play one text."""
        self._drafter.record(recording)
        answer = recording.answer
        if self._simulation:
            took = SimulatedRun.of(self._simulation.run(answer)).seconds
        else:
            took = steps_at(_DEPTH, self._drafter, answer)
        self.seconds.append(took)
        self.tokens.append(len(answer.tokens))


def steps_at(depth: int, drafter: RecordedDrafter, answer: Answer) -> int:
    """The steps of an answer at a fixed depth."""
    drafter.begin(answer.prompt)
    prefix, done, steps = answer.sampler.prefix(answer.prompt), 0, 0
    while done < len(answer.tokens):
        rest = answer.tokens[done:]
        draft = drafter.propose(Limit(depth, prefix, answer.sampler))
        accepted = common_prefix(draft.tokens, rest)
        tokens = rest[: accepted + 1]
        drafter.observe(Outcome(tokens, min(accepted, len(tokens))))
        for token in tokens:
            prefix = prefix.then(token)
        done, steps = done + len(tokens), steps + 1
    return steps


def step_costs(machine: str) -> StepCosts:
    """The costs of a machine of COSTS, with those of a draft model and of `suffix`."""
    drafters = {
        MODEL: DrafterCost(_DRAFT, _DRAFT, _READING),
        Suffix.name: DrafterCost(_COPYING),
    }
    return StepCosts(dict(COSTS[machine]), 0.0, 0.0, drafters)


@dataclass(frozen=True, slots=True)
class Recorder:
    """Writes answers plainly, and reads them with both models. target, drafter: their caches."""

    engine: Engine
    target: KVSequence
    drafter: KVSequence

    def record(
        self, prompt: Prompt, seed: int, temperature: float, tokens: int, *, long: bool
    ) -> Recording:
        """Write and read one answer; a long one has exactly so many tokens."""
        running = self.engine.stream(
            prompt,
            max_tokens=tokens,
            seed=seed,
            temperature=temperature,
            depth=0,
            logprobs=False,
            ignore_eos=long,
        )
        ids, written = list(running.prompt), running.result()
        sampler = self.engine.slot.sampler(running.settings, len(ids))
        limit = min(tokens, self.engine.context - len(ids))
        answer = Answer(ids, written.token_ids, limit, sampler, written.stats)
        n_vocab = self.engine.model.n_vocab
        target, drafter = (_rows(each, answer, n_vocab) for each in (self.target, self.drafter))
        return Recording(answer, target, drafter)


def _rows(sequence: KVSequence, answer: Answer, n_vocab: int) -> NDArray[np.float32]:
    """The logits before each token of an answer, (tokens, n_vocab)."""
    sequence.set_tokens(answer.prompt[:-1])
    tokens, found = answer.text[len(answer.prompt) - 1 : -1], []
    for start in range(0, len(tokens), MAX_DEPTH + 1):
        chunk = tokens[start : start + MAX_DEPTH + 1]
        found.append(direct(Pass(sequence, chunk, wanted=len(chunk))).logits[:, :n_vocab].copy())
    return np.concatenate(found)


def _answers(
    recorder: Recorder, prompts: Sequence[Prompt], temperature: float, tokens: int, *, long: bool
) -> Iterator[Recording]:
    for seed, prompt in enumerate(prompts):
        yield recorder.record(prompt, seed, temperature, tokens, long=long)


def _learnt(recordings: Iterator[Recording], temperature: float) -> list[Correction]:
    """The corrections, after they have learnt from some texts at a fixed depth."""
    corrections = all_corrections()
    for each in corrections:
        each.temperature = temperature or 1.0
    played = [Played(each, None, False) for each in corrections]
    _play(played, recordings)
    return corrections


def _played(
    corrections: Sequence[Correction], machines: Sequence[str], recordings: Iterator[Recording]
) -> list[Played]:
    """Every correction at the fixed depth, and with every machine and both sets of drafters."""
    ways = [(None, False), *((machine, each) for machine in machines for each in (False, True))]
    played = [
        Played(deepcopy(correction), machine, suffix)
        for machine, suffix in ways
        for correction in corrections
    ]
    _play(played, recordings)
    return played


def _play(played: Sequence[Played], recordings: Iterator[Recording]) -> None:
    for recording in recordings:
        for each in played:
            each.play(recording)


def prompts_for(target: Path, file: Path | None) -> list[Prompt]:
    """The prompts of a file; without one, those that a target's drafters are trained with."""
    if file:
        tasks = read_tasks(file, "--file")
        return [task.content if isinstance(task.content, str) else list(task.content)
                for task in tasks]  # fmt: skip
    own = default_sets(target) == [TERMINAL]
    texts = terminal_prompts() if own else general_prompts()
    return [[{"role": "user", "content": text}] for text in texts]


def _options() -> argparse.Namespace:
    parser = argument_parser(__file__, __doc__)
    add_model_options(parser)
    parser.add_argument("--draft", type=Path, required=True, help="a draft model")
    parser.add_argument("--file", type=Path, help="of prompts, as for bench --prompts")
    parser.add_argument("--learn", type=int, default=100, help="chats to learn from")
    parser.add_argument("--chats", type=int, default=40, help="other chats, to be measured")
    parser.add_argument("--long", type=int, default=6, help="of these, also as long answers")
    parser.add_argument("--tokens", type=int, default=200, help="the most of a chat's answer")
    parser.add_argument("--long-tokens", type=int, default=1000, help="of a long answer")
    parser.add_argument("--costs", nargs="+", choices=COSTS, default=_COSTS, metavar="NAME")
    options = parser.parse_args()
    if options.learn < 1 or min(options.chats, options.long) < 2 or options.tokens < 1:
        parser.error("--learn and --tokens must be 1 or more, --chats and --long 2 or more")
    return options


def main() -> None:
    """Print a row per temperature, kind of text, machine, drafters and correction."""
    options = _options()
    prompts = prompts_for(options.model, options.file)[: options.learn + options.chats]
    learn, chats = prompts[: -options.chats], prompts[-options.chats :]
    table = Table(
        ("temp", "4.1f"),
        ("texts", "<5"),
        ("costs", "<7"),
        ("drafters", "<12"),
        ("correction", "<24"),
        ("x plain", "7.2f"),
        ("gain", "+7.1%"),
        ("from", "+7.1%"),
        ("to", "+7.1%"),
    )
    with load(options.model, str(options.draft), threads=options.threads) as engine:
        [small] = engine.drafter_set.sequences.values()
        for temperature in _TEMPERATURES:
            settings = GenerationConfig.of(temperature=temperature)
            with engine.slot.new_context(settings) as context:
                recorder = Recorder(engine, context, small)

                def answers(asked: Sequence[Prompt], *, long: bool = False) -> Iterator[Recording]:
                    tokens = options.long_tokens if long else options.tokens
                    return _answers(recorder, asked, temperature, tokens, long=long)  # noqa: B023

                corrections = _learnt(answers(learn), temperature)
                for name, recordings in {
                    "chats": answers(chats),
                    "long": answers(chats[: options.long], long=True),
                }.items():
                    played = _played(corrections, options.costs, recordings)
                    _print(table, temperature, name, played)


def _print(table: Table, temperature: float, texts: str, played: Sequence[Played]) -> None:
    before = played[0]
    for each in played:
        if each.correction.name == Correction.name:
            before = each
        gain = ratio_interval(before.seconds, each.seconds)
        table.print_row(
            temperature,
            texts,
            each.machine or f"depth {_DEPTH}",
            f"suffix,{MODEL}" if each.suffix else MODEL,
            each.correction.name,
            sum(each.tokens) / sum(each.seconds),
            *(end - 1 for end in (gain.value, gain.low, gain.high) if end),
        )


if __name__ == "__main__":
    main()
