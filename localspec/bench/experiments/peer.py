"""localspec against llama.cpp's own tool for speculative decoding.

    python -m localspec.bench.experiments.peer BINARY --model TARGET.gguf --draft DRAFTER.gguf

BINARY is `llama-speculative-simple`, built from the very llama.cpp that llama-cpp-python carries:

    cmake -B build -DCMAKE_BUILD_TYPE=Release vendor/llama.cpp
    cmake --build build --target llama-speculative-simple

The tool has no automatic depth: it runs every prompt at each depth asked for, and its best one
counts. `auto` has generated one text before, which does not count, and so knows both models a
little. Both speeds are tokens per second after the target has read the prompt. (On a GPU the tool
starts its clock while the target may still be reading.)
"""

import os
import re
import subprocess
import tempfile
from argparse import Namespace
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from localspec.bench.configurations import Sweep
from localspec.bench.experiments.command_line import Table, argument_parser
from localspec.bench.prompt_sets import Task, load_tasks
from localspec.bench.runner import warm_up
from localspec.engine.engine import Engine
from localspec.errors import LocalspecError
from localspec.loading.config import RuntimeConfig

_DECODED = re.compile(r"decoded +(\d+) tokens in +([\d.]+) seconds")
_TIMEOUT = 600  # seconds
# The tool loads the GPU's code before its clock starts, as localspec does.
_ENVIRONMENT = {"CUDA_MODULE_LOADING": "EAGER"}
_ALL_LAYERS = 999
_CONTEXT = 2048
# After a very short run the end of what the tool prints may be missing, though it did not fail.
_ATTEMPTS = 8
# What `auto` generates before: a prompt, and how many tokens.
_FIRST_TEXT = "def main():\n", 160


@dataclass(frozen=True, slots=True)
class _Tool:
    """llama.cpp's tool, with the options of every run."""

    binary: Path
    target: Path
    drafter: Path
    threads: int
    tokens: int
    temperature: float

    def speed(self, prompt: str, kind: str, depth: int) -> float:
        """Tokens per second on this prompt. Raises LocalspecError if the tool prints none."""
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
            file.write(prompt)
            file.flush()
            for _ in range(_ATTEMPTS):
                done = subprocess.run(
                    [*self._command(kind), "--spec-draft-n-max", str(depth), "-f", file.name],
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=_TIMEOUT,
                    check=False,
                    env=os.environ | _ENVIRONMENT,
                )
                found = _DECODED.search(done.stderr + done.stdout)
                if found:
                    # Its last pass may accept dozens of tokens more than were asked for.
                    return min(int(found[1]), self.tokens) / float(found[2])
        raise LocalspecError(f"{self.binary.name} named no speed: {done.stderr[-300:]!r}")

    def _command(self, kind: str) -> list[str]:
        options = {
            "-m": self.target,
            "--spec-type": kind,
            "-n": self.tokens,
            "--temp": self.temperature,
            "--seed": 1,
            "-t": self.threads,
            "-c": _CONTEXT,
            # As localspec does where there is a GPU; what does not fit is an error, not a slow run.
            "-ngl": _ALL_LAYERS,
        }
        if kind.startswith("draft"):
            options |= {"-md": self.drafter, "-td": self.threads, "-ngld": _ALL_LAYERS}
        flat = [str(word) for pair in options.items() for word in pair]
        return [str(self.binary), *flat, "--ignore-eos"]


@dataclass(frozen=True, slots=True)
class _Compared:
    """One prompt: tokens per second of `auto`, of plain decoding, and of the tool at its best.

    best: the tool's kind and depth. ratio: `auto` to the tool, the median of all rounds: what slows
    the machine for a while slows both.
    """

    task: Task
    auto: float
    plain: float
    tool: float
    best: str
    ratio: float


def _compare(
    tool: _Tool,
    engines: dict[str, Engine],
    task: Task,
    kinds_and_depths: Iterable[tuple[str, int]],
    rounds: int,
) -> _Compared:
    """Run all of them in turn, round after round, and take medians."""
    named = {f"{kind} {depth}": (kind, depth) for kind, depth in kinds_and_depths}
    speeds: dict[str, list[float]] = {}
    for round_ in range(rounds):
        for name, engine in engines.items():
            speeds.setdefault(name, []).append(_own_speed(engine, task, tool, seed=round_))
        for name, (kind, depth) in named.items():
            speeds.setdefault(name, []).append(tool.speed(str(task.content), kind, depth))
    ratios = {
        name: median(ours / theirs for ours, theirs in zip(speeds["auto"], each, strict=True))
        for name, each in speeds.items()
        if name in named
    }
    best = min(ratios, key=ratios.__getitem__)
    auto, plain, theirs = (median(speeds[name]) for name in ("auto", "plain", best))
    return _Compared(task, auto, plain, theirs, best, ratios[best])


def _own_speed(engine: Engine, task: Task, tool: _Tool, seed: int) -> float:
    # The tool warms up, too: weights that nobody has read for a while are slow to come.
    warm_up(engine, temperature=0, ignore_eos=True, depth=1)
    result = engine.generate(
        task.prompt_for(engine),
        max_tokens=tool.tokens,
        temperature=tool.temperature,
        ignore_eos=True,
        seed=seed,
    )
    return len(result.token_ids) / result.stats.seconds.generate


def _options() -> Namespace:
    parser = argument_parser(__file__, __doc__)
    parser.add_argument("binary", type=Path, help="llama-speculative-simple")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--set", dest="sets", default="code,edit")
    parser.add_argument("--kinds", default="draft-simple,ngram-simple")
    parser.add_argument("--depths", default="3,5,7")
    parser.add_argument("--threads", type=int, default=2)
    # It counts a token that needs no pass.
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    """Print a line per prompt, and the median of the ratios."""
    options = _options()
    tool = _Tool(
        options.binary,
        options.model,
        options.draft,
        options.threads,
        options.tokens,
        options.temperature,
    )
    kinds_and_depths = [
        (kind, int(depth))
        for kind in options.kinds.split(",")
        # An n-gram draft is as long as the match: its depth is a bound that seldom matters.
        for depth in (options.depths.split(",") if kind.startswith("draft") else ["16"])
    ]
    tasks, ratios = load_tasks(options.sets.split(","), None), []
    sweep = Sweep(tool.target, tool.drafter, ["auto"], [None])
    with sweep.load(RuntimeConfig(_CONTEXT, threads=tool.threads), tasks, tool.tokens) as loaded:
        engines = {each.name: each.engine for each in loaded.configurations}
        prompt, tokens = _FIRST_TEXT
        engines["auto"].generate(
            prompt, max_tokens=tokens, temperature=tool.temperature, ignore_eos=True
        )
        table = Table(
            ("prompt", "<10"),
            ("plain", "7.1f"),
            ("auto", "7.1f"),
            ("peer", "7.1f"),
            ("auto/peer", "9.2f"),
            ("its best", "<8"),
        )
        for task in tasks:
            found = _compare(tool, engines, task, kinds_and_depths, options.rounds)
            ratios.append(found.ratio)
            table.print_row(
                f"{task.set} {task.number}",
                *(found.plain, found.auto, found.tool, found.ratio, found.best),
            )
    print(f"auto / peer: median {median(ratios):.2f}, least {min(ratios):.2f}")


if __name__ == "__main__":
    main()
