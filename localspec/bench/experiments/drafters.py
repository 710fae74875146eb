"""Drafters of any kind beside each other: what is accepted, and what it gains.

    python -m localspec.bench.experiments.drafters --model TARGET --draft HEAD --draft suffix

For each drafter and temperature: how many tokens of each depth are accepted, tokens per step, and
the speed at that depth and with `auto`, as ratios to plain decoding, by turns. `match` drafts the
most probable tokens instead of coupled ones, as llama.cpp's speculative decoding does.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from localspec.bench.experiments.command_line import Table, add_model_options, argument_parser
from localspec.bench.experiments.greedy_drafter import greedy
from localspec.bench.geometric_mean import mean_of
from localspec.bench.prompt_sets import SETS, Task, bundled_tasks, read_tasks
from localspec.drafters.suffix import Suffix
from localspec.engine.engine import Engine, load
from localspec.engine.generation import Result

_TEMPERATURES = (0.0, 0.7, 1.0)
_MATCH = "match"


@dataclass(slots=True)
class _Row:
    """What one drafter did at one temperature.

    accepted: by depth. tried: how often a token of that depth could have been. ratios: speed
    divided by plain's, a list per prompt; auto: the same with an adaptive depth.
    """

    accepted: list[int]
    tried: list[int]
    tokens: int = 0
    steps: int = 0
    ratios: list[list[float]] = field(default_factory=list)
    auto: list[list[float]] = field(default_factory=list)

    def add(self, result: Result) -> None:
        stats = result.stats
        self.tokens += stats.generated_tokens
        self.steps += stats.steps
        accepted = [*stats.accepted_per_position, *[0] * len(self.accepted)][: len(self.accepted)]
        self.accepted = [old + new for old, new in zip(self.accepted, accepted, strict=True)]
        reached = [stats.drafting_steps, *accepted]
        self.tried = [old + new for old, new in zip(self.tried, reached, strict=False)]

    @property
    def rates(self) -> str:
        """How often each depth was right, where all before it were."""
        pairs = zip(self.accepted, self.tried, strict=True)
        return " ".join(f"{right / max(1, tried):4.0%}" for right, tried in pairs)


@contextmanager
def _engines(options: argparse.Namespace) -> Iterator[dict[str, Engine]]:
    """The engines: plain, each drafter, and each drafter with its most probable tokens."""
    with ExitStack() as stack:

        def opened(draft: object) -> Engine:
            made = load(options.model, draft, threads=options.threads)  # type: ignore[arg-type]
            return stack.enter_context(made)

        found = {"plain": opened("none")}
        for draft in options.draft:
            # It writes each text twice, and must not copy from itself.
            engine = opened(Suffix(max_replaced=0) if draft == Suffix.name else draft)
            [drafter] = engine.drafter_set.drafters
            found[drafter.name] = engine
            if drafter.traits.gives_probs:
                found[f"{drafter.name} {_MATCH}"] = opened(greedy(drafter, _MATCH))
        yield found


def _measure(
    engines: dict[str, Engine],
    tasks: Sequence[Task],
    temperature: float,
    options: argparse.Namespace,
) -> dict[str, _Row]:
    depth = options.depth
    rows = {name: _Row([0] * depth, [0] * depth) for name in engines if name != "plain"}

    def write(name: str, task: Task, seed: int, depth: int | None) -> tuple[Result, float]:
        engine = engines[name]
        prompt = task.prompt_for(engine)
        common = {"max_tokens": options.tokens, "temperature": temperature, "seed": seed}
        engine.generate(prompt, max_tokens=1, depth=0)  # the prompt is read before the clock starts
        began = perf_counter()
        result = engine.generate(prompt, depth=depth, **common)
        return result, (perf_counter() - began) / max(1, len(result.token_ids))

    for task in tasks:
        for row in rows.values():
            row.ratios.append([])
            row.auto.append([])
        for seed in range(options.rounds):
            _, plain = write("plain", task, seed, 0)
            for name, row in rows.items():
                result, seconds = write(name, task, seed, depth)
                row.add(result)
                row.ratios[-1].append(plain / seconds)
                if not name.endswith(_MATCH):
                    row.auto[-1].append(plain / write(name, task, seed, None)[1])
    return rows


def _interval(groups: Sequence[Sequence[float]]) -> str:
    if not any(groups):
        return ""
    found = mean_of(groups)
    if found.low is None or found.high is None:
        return f"{found.value:.2f}"
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"


def main() -> None:
    """Print a row per temperature and drafter."""
    parser = argument_parser(__file__, __doc__)
    add_model_options(parser)
    parser.add_argument("--draft", action="append", required=True, help="may be repeated")
    parser.add_argument("--set", default="code", choices=SETS, help="of prompts")
    parser.add_argument("--file", type=Path, help="prompts of your own, instead of a set")
    parser.add_argument("--prompts", type=int, default=4, help="how many of them")
    parser.add_argument("--tokens", type=int, default=96, help="per text")
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--temperature", type=float, action="append", help="default: 0, 0.7 and 1")
    parser.add_argument("--rounds", type=int, default=3, help="texts per prompt, a seed for each")
    options = parser.parse_args()
    if min(options.tokens, options.depth, options.rounds, options.prompts) < 1:
        parser.error("--tokens, --depth, --rounds and --prompts must be 1 or more")
    tasks = read_tasks(options.file) if options.file else bundled_tasks(options.set)
    tasks = tasks[: options.prompts]
    print(f"{options.model.name}: {len(tasks)} prompts of {tasks[0].set}, depth {options.depth},")
    print(f"{options.rounds} texts of {options.tokens} tokens each; accepted by depth")
    table = Table(
        ("temp", "4.1f"),
        ("drafter", "<28"),
        ("accepted", f"<{max(8, 5 * options.depth)}"),
        ("tok/step", "8.2f"),
        ("x plain", "<20"),
        ("auto", "<20"),
    )
    with _engines(options) as engines:
        for temperature in options.temperature or _TEMPERATURES:
            for name, row in _measure(engines, tasks, temperature, options).items():
                table.print_row(
                    temperature,
                    name,
                    row.rates,
                    row.tokens / max(1, row.steps),
                    _interval(row.ratios),
                    _interval(row.auto),
                )


if __name__ == "__main__":
    main()
