"""Time and memory of the suffix drafter: `python -m localspec.bench.experiments.suffix_time`.

The text is Python source, the standard library's, in tokens of the bundled vocabulary.
"""

import argparse
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

from localspec.drafters.suffix import Suffix
from localspec.llama.model import Model
from localspec.models.registry import bundled
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Limit, Outcome

SAMPLES = 10_000
CHUNK = 4  # tokens committed per step


def source_tokens(count: int) -> list[int]:
    """The first tokens of the standard library's sources, in the order of their names."""
    tokens: list[int] = []
    with Model(bundled().target) as model:
        for path in sorted(Path(argparse.__file__).parent.glob("*.py")):
            if len(tokens) >= count:
                break
            tokens += model.tokenize(path.read_text(encoding="utf-8"), add_special=False)
    return tokens[:count]


def timed(action: Callable[[], object]) -> float:
    """Microseconds it took."""
    began = perf_counter()
    action()
    return 1e6 * (perf_counter() - began)


def measured(tokens: list[int], length: int, depth: int) -> Iterator[tuple[str, list[float]]]:
    """What was done, and each time it took in microseconds, around `length` tokens of text."""
    sampler = Sampler(SamplingParams(), Noise(0))
    limit = Limit(depth, sampler.prefix([]), sampler)
    drafter = Suffix()
    drafter.begin(tokens[:length])
    updates, proposals, chances = [], [], []
    for start in range(length, len(tokens) - CHUNK, CHUNK):
        outcome = Outcome(tokens[start : start + CHUNK], 0)
        updates.append(timed(partial(drafter.observe, outcome)) / CHUNK)
        proposals.append(timed(partial(drafter.propose, limit)))
        chances.append(timed(partial(drafter.confidences, depth)))
    yield "committed token", updates
    yield "proposal", proposals
    yield "confidences", chances
    text = tokens[:length]
    yield "prompt token", [timed(lambda: Suffix().begin(text)) / length for _ in range(3)]
    cut = text[: -length // 10]
    yield "cut by a tenth", [timed(lambda: drafter.begin(cut))]


def bytes_per_token(tokens: list[int]) -> float:
    """What the drafter holds, divided by the length of the text."""
    tracemalloc.start()
    drafter = Suffix()
    drafter.begin(tokens)
    held, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / len(tokens)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--depth", type=int, default=8)
    options = parser.parse_args()
    tokens = source_tokens(max(options.lengths) + SAMPLES)
    print(f"{'context':>8}  {'microseconds per':16} {'median':>8} {'p99':>8}")
    for length in options.lengths:
        around = tokens[: length + SAMPLES]
        for what, times in measured(around, length, options.depth):
            last = quantiles(times, n=100)[-1] if len(times) > 100 else max(times)
            print(f"{length:8,}  {what:16} {median(times):8.2f} {last:8.2f}")
        print(f"{length:8,}  {'bytes per token':16} {bytes_per_token(tokens[:length]):8.0f}")


if __name__ == "__main__":
    main()
