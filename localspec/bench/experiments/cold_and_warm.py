"""Cold and warm texts by the clock: what the first text of a run loses to a later one.

    python -m localspec.bench.experiments.cold_and_warm --model FILE --draft FILE [--rounds 5]

In each round a run writes some texts and ends, so that what it has learnt is kept. From there begin
a run that writes as many texts and then goes on, and one run after the other that writes a single
text: the same text as the long run, by turns.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from localspec.bench.experiments.command_line import (
    Table,
    add_model_options,
    argument_parser,
    command_again,
)
from localspec.bench.geometric_mean import mean_of
from localspec.bench.prompt_sets import SETS, load_tasks
from localspec.engine.engine import Engine, load

_CONTEXT = 1024


class _Run:
    """A process with an engine, which knows what is in a folder. Has loaded once it is made."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        names = ("model", "draft", "threads", "tokens", "temperature")
        given = {f"--{name}": getattr(options, name) for name in names}
        words = [str(word) for pair in given.items() if pair[1] is not None for word in pair]
        self._process = subprocess.Popen(
            command_again(__file__, [*words, "--run"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "LOCALSPEC_HOME": str(folder)},
        )
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        """End it: what it has learnt is in the folder then."""
        self._process.communicate()
        if self._process.returncode:
            sys.exit(self._process.returncode)

    def write(self, name: str, number: int, seed: int) -> float:
        """Write the text of a prompt of a set; return its tokens per second."""
        assert self._process.stdin
        print(name, number, seed, file=self._process.stdin, flush=True)
        return float(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout
        if not (line := self._process.stdout.readline()):
            sys.exit(self._process.wait() or 1)
        return line


def _obey(options: argparse.Namespace) -> None:
    """Be such a process."""
    drafters = ["suffix", options.draft]
    with load(options.model, drafters, context=_CONTEXT, threads=options.threads) as engine:
        print("ready", flush=True)
        for line in sys.stdin:
            name, number, seed = line.split()
            print(_speed(engine, options, name, int(number), int(seed)), flush=True)


def _speed(engine: Engine, options: argparse.Namespace, name: str, number: int, seed: int) -> float:
    prompt = load_tasks([name], None)[number].prompt_for(engine)
    result = engine.generate(
        prompt,
        max_tokens=options.tokens,
        temperature=options.temperature,
        seed=seed,
        ignore_eos=True,
    )
    return len(result.token_ids) / result.stats.seconds.generate


def _round(options: argparse.Namespace, folder: Path, seed: int) -> Iterator[tuple[float, float]]:
    """Yield the tokens per second of each text, cold and warm."""
    numbers = range(options.texts)
    kept = folder / "kept"
    with _Run(options, kept) as first:
        for number in numbers:
            first.write(options.before, number, 3 * seed)
    with _Run(options, Path(shutil.copytree(kept, folder / "warm"))) as warm:
        for number in numbers:
            warm.write(options.before, number, 3 * seed + 1)
        for number in numbers:
            text = (options.set, number, 3 * seed + 2)
            speed = warm.write(*text) if (seed + number) % 2 else None
            with _Run(options, Path(shutil.copytree(kept, folder / f"cold-{number}"))) as cold:
                cold_speed = cold.write(*text)
            yield cold_speed, warm.write(*text) if speed is None else speed


def main() -> None:
    """Print a line per text, and the mean of the ratios with its interval."""
    parser = argument_parser(__file__, __doc__)
    add_model_options(parser)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--set", choices=SETS, default="code", help="what is compared")
    parser.add_argument("--before", choices=SETS, default="edit", help="what is written before")
    parser.add_argument("--texts", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        _obey(options)
        return
    columns = ("round", "5"), ("text", "4"), ("cold", "7.1f"), ("warm", "7.1f"), ("ratio", "6.2f")
    table = Table(*columns)
    ratios: list[list[float]] = [[] for _ in range(options.texts)]
    for seed in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            for text, (cold, warm) in enumerate(_round(options, Path(folder), seed)):
                ratios[text].append(cold / warm)
                table.print_row(seed + 1, text + 1, cold, warm, cold / warm)
    found = mean_of(ratios)
    interval = "" if found.low is None else f" ({found.low:.2f} to {found.high:.2f})"
    print(f"cold / warm: mean {found.value:.2f}{interval}")


if __name__ == "__main__":
    main()
