"""Plain decoding against each drafter, in turn: `python -m localspec.bench.alternate`.

Every round runs every drafter once on every prompt, so that a machine whose speed drifts slows
all of them alike; the figures are medians over rounds, the ratios medians of ratios per round.
"""

import argparse
from dataclasses import dataclass, field
from statistics import median

from localspec.engine import Engine, load

# Beginnings in the manner of modules the bundled pair was not trained on.
PROMPTS = [
    'def heapreplace(heap, item):\n    """Pop and return the current smallest value, and add',
    "class TextWrapper:\n    def __init__(self, width=70, initial_indent=''):",
    "class DictReader:\n    def __init__(self, f, fieldnames=None, restkey=None):\n        self._",
    "def mean(data):\n    n = len(data)\n    if n < 1:\n        raise",
]


@dataclass
class Series:
    """What one drafter did, a figure per round."""

    speed: list[float] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0
    tokens: int = 0
    steps: int = 0
    ids: list[list[int]] = field(default_factory=list)


def run_round(engine: Engine, series: Series, options: argparse.Namespace) -> None:
    """All prompts once; their tokens over their seconds."""
    tokens, seconds, ids = 0, 0.0, []
    for seed, prompt in enumerate(PROMPTS):
        result = engine.generate(
            prompt,
            max_tokens=options.tokens,
            temperature=options.temperature,
            depth=options.depth,
            seed=seed,
        )
        stats = result.stats
        tokens += stats.generated_tokens
        seconds += stats.seconds.generate
        series.drafted += stats.drafted
        series.accepted += stats.accepted
        series.tokens += stats.generated_tokens
        series.steps += stats.steps
        ids += result.token_ids
    series.speed.append(tokens / seconds)
    series.ids.append(ids)


def report(series: dict[str, Series]) -> None:
    """The table."""
    plain = series["none"]
    print(f"{'draft':>16} {'tok/s':>8} {'x plain':>8} {'accept':>7} {'tok/step':>9}  same text")
    for name, each in series.items():
        ratio = median(a / b for a, b in zip(each.speed, plain.speed, strict=True))
        accept = f"{each.accepted / each.drafted:.0%}" if each.drafted else "-"
        same = "yes" if each.ids[0] == plain.ids[0] else "no"
        print(
            f"{name:>16} {median(each.speed):8.0f} {ratio:8.2f} {accept:>7} "
            f"{each.tokens / each.steps:9.2f}  {same}"
        )


def main() -> None:
    """Load one engine per drafter and let them take turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="target GGUF; the bundled one by default")
    parser.add_argument("--drafts", default="none,lookup,ngram,auto", help="must include none")
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    if "none" not in options.drafts.split(","):
        parser.error(f"--drafts {options.drafts} must include none, to compare with")
    engines = {
        draft: load(options.model, draft, threads=options.threads)
        for draft in options.drafts.split(",")
    }
    series = {name: Series() for name in engines}
    for _ in range(options.rounds):
        for name, engine in engines.items():
            run_round(engine, series[name], options)
    report(series)
    for engine in engines.values():
        engine.close()


if __name__ == "__main__":
    main()
