"""Time and memory of the suffix drafter.

    python -m localspec.bench.experiments.suffix_time

The text is Python source, the standard library's, in tokens of the bundled vocabulary.
"""

import sysconfig
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

from localspec.bench.experiments.command_line import Table, argument_parser
from localspec.drafters.suffix import Suffix
from localspec.llama.model import Model
from localspec.models.registry import bundled
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Limit, Outcome

# Tokens committed after each context, and in each step.
_SAMPLES = 10_000
_STEP = 4


def _source_tokens(count: int) -> list[int]:
    """The first tokens of the standard library's sources, in the order of their names."""
    tokens: list[int] = []
    with Model(bundled().target) as model:
        for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
            if len(tokens) >= count:
                break
            tokens += model.tokenize(path.read_text(encoding="utf-8"), add_special=False)
    return tokens[:count]


def _microseconds(action: Callable[[], object]) -> float:
    began = perf_counter()
    action()
    return 1e6 * (perf_counter() - began)


def _measured(tokens: list[int], length: int, depth: int) -> Iterator[tuple[str, list[float]]]:
    """Yield what was done and the microseconds of each time, after a text of `length` tokens."""
    sampler = Sampler(SamplingParams(), Noise(0))
    limit = Limit(depth, sampler.prefix([]), sampler)
    drafter = Suffix()
    drafter.begin(tokens[:length])
    updates, proposals, chances = [], [], []
    for start in range(length, len(tokens) - _STEP, _STEP):
        outcome = Outcome(tokens[start : start + _STEP], 0)
        updates.append(_microseconds(partial(drafter.observe, outcome)) / _STEP)
        proposals.append(_microseconds(partial(drafter.propose, limit)))
        chances.append(_microseconds(partial(drafter.chances, limit)))
    yield "committed token", updates
    yield "proposal", proposals
    yield "chances", chances
    text = tokens[:length]
    yield "prompt token", [_microseconds(lambda: Suffix().begin(text)) / length for _ in range(3)]
    cut = text[: -length // 10]
    yield "cut by a tenth", [_microseconds(lambda: drafter.begin(cut))]


def _bytes_per_token(tokens: list[int]) -> float:
    """Memory of a drafter that holds a text, divided by the length of the text."""
    tracemalloc.start()
    drafter = Suffix()
    drafter.begin(tokens)
    held, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / len(tokens)


def main() -> None:
    """Print the microseconds of each operation, and the bytes per token."""
    parser = argument_parser(__file__, __doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--depth", type=int, default=8)
    options = parser.parse_args()
    tokens = _source_tokens(max(options.lengths) + _SAMPLES)
    table = Table(
        ("context", "8,"), ("microseconds per", "<16"), ("median", "8.2f"), ("p99", "8.2f")
    )
    for length in options.lengths:
        for what, times in _measured(tokens[: length + _SAMPLES], length, options.depth):
            p99 = quantiles(times, n=100)[-1] if len(times) > 100 else max(times)
            table.print_row(length, what, median(times), p99)
        table.print_row(length, "bytes per token", _bytes_per_token(tokens[:length]))


if __name__ == "__main__":
    main()
