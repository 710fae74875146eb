"""localspec against llama.cpp's own tool: `python -m localspec.bench.experiments.peer`.

The tool is `llama-speculative-simple`, built from the very llama.cpp that llama-cpp-python carries:

    cmake -B build -DCMAKE_BUILD_TYPE=Release vendor/llama.cpp
    cmake --build build --target llama-speculative-simple

It has no automatic depth: every prompt is run at each depth asked for, and the best one counts.
`auto` has written one text that does not count before, and so knows both models a little.
Both figures are tokens per second after the target has read the prompt. (On a GPU the tool starts
its clock while that may still go on.)
"""

import argparse
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from localspec.bench.prompt_sets import Task, tasks_of
from localspec.drafters.suffix import Suffix
from localspec.engine.engine import Engine, load
from localspec.errors import LocalspecError

_DECODED = re.compile(r"decoded +(\d+) tokens in +([\d.]+) seconds")
_SECONDS = 600
# A GPU's code is loaded before the clock runs, as localspec's is by then.
_ENVIRONMENT = {"CUDA_MODULE_LOADING": "EAGER"}
_ALL_LAYERS = 999
# Where it is done quickly, the end of what it prints may be missing, though it did not fail.
_TRIES = 8
_WARM_UP = 8
_KNOWN_BY = "def main():\n", 160


@dataclass(frozen=True, slots=True)
class Peer:
    """The tool, with the options every run has."""

    binary: Path
    target: Path
    drafter: Path
    threads: int
    tokens: int
    temperature: float

    def speed(self, prompt: str, kind: str, depth: int) -> float:
        """Tokens per second on this prompt. Raises LocalspecError where it does not say."""
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
            file.write(prompt)
            file.flush()
            for _ in range(_TRIES):
                done = subprocess.run(
                    [*self._command(kind), "--spec-draft-n-max", str(depth), "-f", file.name],
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=_SECONDS,
                    check=False,
                    env=os.environ | _ENVIRONMENT,
                )
                found = _DECODED.search(done.stderr + done.stdout)
                if found:
                    # Its last pass may bring dozens of tokens more than were asked for.
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
            "-c": 2048,
            # As localspec does where there is a GPU; what does not fit is an error, not a slow run.
            "-ngl": _ALL_LAYERS,
        }
        if kind.startswith("draft"):
            options |= {"-md": self.drafter, "-td": self.threads, "-ngld": _ALL_LAYERS}
        flat = [str(word) for pair in options.items() for word in pair]
        return [str(self.binary), *flat, "--ignore-eos"]


@dataclass(frozen=True, slots=True)
class Compared:
    """One prompt: tokens per second of localspec, of plain decoding, and of the tool at its best.

    best: which kind and depth that was. ratio: ours to theirs, the median of all rounds: what slows
    the machine for a while slows both.
    """

    task: Task
    ours: float
    plain: float
    theirs: float
    best: str
    ratio: float


def compare(
    peer: Peer, engines: dict[str, Engine], task: Task, ways: Iterable[tuple[str, int]], rounds: int
) -> Compared:
    """All ways in turn, round after round; medians."""
    named = {f"{kind} {depth}": (kind, depth) for kind, depth in ways}
    speeds: dict[str, list[float]] = {}
    for round_ in range(rounds):
        for name, engine in engines.items():
            speeds.setdefault(name, []).append(_own(engine, task, peer, seed=round_))
        for way, (kind, depth) in named.items():
            speeds.setdefault(way, []).append(peer.speed(str(task.content), kind, depth))
    ratios = {
        way: median(ours / theirs for ours, theirs in zip(speeds["auto"], speeds[way], strict=True))
        for way in named
    }
    best = min(ratios, key=ratios.__getitem__)
    ours, plain, theirs = (median(speeds[name]) for name in ("auto", "plain", best))
    return Compared(task, ours, plain, theirs, best, ratios[best])


def _own(engine: Engine, task: Task, peer: Peer, seed: int) -> float:
    # The tool warms up, too: weights that nobody has read for a while are slow to come.
    engine.generate([0], max_tokens=_WARM_UP, temperature=0, ignore_eos=True, depth=1)
    result = engine.generate(
        task.prompt_for(engine),
        max_tokens=peer.tokens,
        temperature=peer.temperature,
        ignore_eos=True,
        seed=seed,
    )
    return len(result.token_ids) / result.stats.seconds.generate


def main() -> None:
    """Print a line per prompt and the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
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
    options = parser.parse_args()
    peer = Peer(
        options.binary,
        options.model,
        options.draft,
        options.threads,
        options.tokens,
        options.temperature,
    )
    ways = [
        (kind, int(depth))
        for kind in options.kinds.split(",")
        # An n-gram draft is as long as it is found: its depth is a bound that seldom matters.
        for depth in (options.depths.split(",") if kind.startswith("draft") else ["16"])
    ]
    # Nothing is kept from one run to the next.
    engines = {
        "plain": load(peer.target, "none", threads=peer.threads, context=2048),
        "auto": load(
            peer.target,
            [Suffix(spare=0), peer.drafter],
            threads=peer.threads,
            context=2048,
        ),
    }
    prompt, tokens = _KNOWN_BY
    engines["auto"].generate(
        prompt, max_tokens=tokens, temperature=peer.temperature, ignore_eos=True
    )
    done = []
    print(f"{'prompt':10} {'plain':>7} {'auto':>7} {'peer':>7}  {'auto/peer':>9}  its best")
    for task in tasks_of(options.sets.split(","), None):
        each = compare(peer, engines, task, ways, options.rounds)
        done.append(each)
        print(
            f"{task.set + ' ' + str(task.number):10} {each.plain:7.1f} {each.ours:7.1f} "
            f"{each.theirs:7.1f}  {each.ratio:9.2f}  {each.best}",
            flush=True,
        )
    ratios = sorted(each.ratio for each in done)
    print(f"auto / peer: median {median(ratios):.2f}, least {ratios[0]:.2f}")
    for engine in engines.values():
        engine.close()


if __name__ == "__main__":
    main()
