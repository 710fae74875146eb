"""What the memory plan predicts of models and their caches, against what they then take.

    python -m localspec.bench.experiments.memory_table TARGET.gguf [DRAFTER.gguf]

A row per context and cache type, each in a process of its own, on Linux and the CPU. Of the files,
which are mapped, only those pages count that passes read: the others go when memory is short.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from localspec.gguf.facts import facts_of
from localspec.llama.context import Context
from localspec.llama.dry_run import DryModel, logged, use_of
from localspec.llama.model import Model
from localspec.memory.estimate import KV_TYPES
from localspec.memory.model_memory import ModelMemory
from localspec.utils.format import format_bytes

_STATUS, _MAPS = Path("/proc/self/status"), Path("/proc/self/smaps")
# Where the marks are cleared that say which pages were read.
_CLEAR = Path("/proc/self/clear_refs")
_KIB = 2**10
_READ = 64


@dataclass(frozen=True, slots=True)
class Row:
    """Bytes that the plan predicts, and those of `taken`."""

    context: int
    kv_type: str
    predicted: int
    real: int
    resident: int

    @property
    def off(self) -> float:
        """The share by which the prediction is too high."""
        return self.predicted / self.real - 1


def rows(models: Sequence[Path], contexts: Sequence[int], kv_types: Sequence[str]) -> Iterator[Row]:
    """Every context with every type of cache, the same for all models."""
    for context, kv_type in product(contexts, kv_types):
        wanted = sum(predicted(path, context, kv_type) for path in models)
        yield Row(context, kv_type, wanted, *_measured(models, context, kv_type))


def predicted(path: Path, context: int, kv_type: str) -> int:
    """Bytes that the plan reckons with, for one model."""
    model = ModelMemory(facts_of(path), gpu_layers=0, flash_attention=None)
    try:
        return model.bytes_by_device(context, kv_type).total()
    finally:
        model.close()


def taken(models: Sequence[Path], context: int, kv_type: str) -> tuple[int, int]:
    """Bytes these models take when this process loads them: in all, and resident after some text.

    In all is what it grows by while weights are loaded, the buffers the library then allocates for
    contexts, of which a short text touches a part, and the pages of the files that it reads.
    """
    # What the library takes once for itself is no model's.
    DryModel(models[0], gpu_layers=0).close()
    before, buffers = _private(), 0
    with ExitStack() as stack:
        loaded = [stack.enter_context(Model(path, gpu_layers=0)) for path in models]
        weights = _private() - before
        contexts = []
        for model in loaded:
            with logged() as lines:
                made = Context(model, n_ctx=context, threads=1, kv_type=KV_TYPES[kv_type])
            contexts.append(stack.enter_context(made))
            use = use_of(lines)
            buffers += sum((*use.cache.values(), *use.passes.values()))
        _CLEAR.write_text("1")
        for each in contexts:
            each.extend(range(_READ))
        read = _read_of(models)
        return weights + buffers + read, _private() - before + read


def _measured(models: Sequence[Path], context: int, kv_type: str) -> list[int]:
    """`taken`, in a new process."""
    arguments = [*map(str, models), "--measure", str(context), kv_type]
    command = [sys.executable, "-m", "localspec.bench.experiments.memory_table", *arguments]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [int(each) for each in run.stdout.split()]


def _private() -> int:
    """Bytes of memory that this process has written to."""
    found = re.search(r"RssAnon:\s+(\d+) kB", _STATUS.read_text())
    return int(found[1]) * _KIB if found else 0


def _read_of(models: Sequence[Path]) -> int:
    """Bytes of these files that were read through a map since the marks were cleared."""
    names = tuple(str(path.resolve()) for path in models)
    total, ours = 0, False
    for line in _MAPS.read_text().splitlines():
        key, _, value = line.partition(":")
        if "-" in key.split(" ")[0]:
            ours = line.endswith(names)
        elif ours and key == "Referenced":
            total += int(value.split()[0]) * _KIB
    return total


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", type=Path, nargs="+", help="a target, and maybe its drafter")
    parser.add_argument("--contexts", type=int, nargs="+", default=[2048, 8192, 32768])
    parser.add_argument("--kv-types", nargs="+", default=["f16", "q8_0"], choices=KV_TYPES)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        context, kv_type = options.measure
        print(*taken(options.models, int(context), kv_type))
        return
    print(" + ".join(path.name for path in options.models))
    for row in rows(options.models, options.contexts, options.kv_types):
        print(
            f"{row.context:7,} {row.kv_type:5} predicted {format_bytes(row.predicted):>9}  "
            f"real {format_bytes(row.real):>9}  off {row.off:+.1%}  "
            f"resident {format_bytes(row.resident):>9}",
            flush=True,
        )


if __name__ == "__main__":
    main()
