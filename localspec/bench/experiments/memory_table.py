"""Memory that the memory plan predicts for models, against the memory they then take.

    python -m localspec.bench.experiments.memory_table TARGET.gguf [DRAFTER.gguf]

A row per context and cache type, each measured in a process of its own, on Linux and the CPU. The
files are mapped, and only the pages that passes read count: the others can be dropped when memory
is short.
"""

import re
from argparse import SUPPRESS
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path

from localspec.bench.experiments.command_line import Table, argument_parser, run_in_new_process
from localspec.gguf.facts import facts_of
from localspec.gguf.kv_types import KV_TYPES
from localspec.llama.context import single_sequence
from localspec.llama.context_params import ContextParams
from localspec.llama.dry_run import DryModel, parse_context_memory
from localspec.llama.library import captured_log
from localspec.llama.model import Model
from localspec.llama.placement import ON_PROCESSOR
from localspec.memory.model_memory import ModelMemory
from localspec.utils.format import format_bytes
from localspec.utils.paths import real_path

_STATUS, _MAPS = Path("/proc/self/status"), Path("/proc/self/smaps")
# Writing here clears the marks that say which pages were read.
_CLEAR = Path("/proc/self/clear_refs")
_KIB = 2**10
# Tokens of the text that is read.
_READ = 64


def _predicted(path: Path, context: int, kv_type: str) -> int:
    """Bytes that the memory plan predicts for one model and its cache."""
    model = ModelMemory(facts_of(path), ON_PROCESSOR)
    try:
        params = ContextParams(context, kv_type=kv_type)
        return model.bytes_by_device(params).total()
    finally:
        model.close()


def _measured(models: Sequence[Path], context: int, kv_type: str) -> tuple[int, int]:
    """`_measured_here`, in a new process."""
    arguments = [*map(str, models), "--measure", str(context), kv_type]
    total, resident = run_in_new_process(__file__, arguments).split()
    return int(total), int(resident)


def _measured_here(models: Sequence[Path], context: int, kv_type: str) -> tuple[int, int]:
    """Bytes these models take in this process: in all, and resident after some text.

    In all is the sum of what the process grows by while weights are loaded, of the buffers that the
    library then allocates for contexts, of which a short text touches a part, and of the pages of
    the files that it reads.
    """
    # Not counted: what the library allocates once, whatever the model.
    DryModel(models[0], ON_PROCESSOR).close()
    before, buffers = _private_bytes(), 0
    with ExitStack() as stack:
        loaded = [stack.enter_context(Model(path, ON_PROCESSOR)) for path in models]
        weights = _private_bytes() - before
        contexts = []
        for model in loaded:
            with captured_log() as lines:
                made = single_sequence(
                    model, ContextParams(n_ctx=context, threads=1, kv_type=kv_type)
                )
            contexts.append(stack.enter_context(made))
            use = parse_context_memory(lines)
            buffers += sum((*use.cache.values(), *use.compute_buffers.values()))
        _CLEAR.write_text("1")
        for each in contexts:
            each.extend(range(_READ))
        read = _read_bytes(models)
        return weights + buffers + read, _private_bytes() - before + read


def _private_bytes() -> int:
    """Memory that this process has written to."""
    found = re.search(r"RssAnon:\s+(\d+) kB", _STATUS.read_text())
    return int(found[1]) * _KIB if found else 0


def _read_bytes(models: Sequence[Path]) -> int:
    """Bytes of these mapped files that were read since the marks were cleared."""
    names = tuple(str(real_path(path)) for path in models)
    total, ours = 0, False
    for line in _MAPS.read_text().splitlines():
        key, _, value = line.partition(":")
        if "-" in key.split(" ")[0]:
            ours = line.endswith(names)
        elif ours and key == "Referenced":
            total += int(value.split()[0]) * _KIB
    return total


def main() -> None:
    """Print the predicted and the measured memory of every context with every type of cache."""
    parser = argument_parser(__file__, __doc__)
    parser.add_argument("models", type=Path, nargs="+", help="a target, and maybe its drafter")
    parser.add_argument("--contexts", type=int, nargs="+", default=[2048, 8192, 32768])
    parser.add_argument("--kv-types", nargs="+", default=["f16", "q8_0"], choices=KV_TYPES)
    parser.add_argument("--measure", nargs=2, help=SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        context, kv_type = options.measure
        print(*_measured_here(options.models, int(context), kv_type))
        return
    print(" + ".join(path.name for path in options.models))
    table = Table(
        ("context", "7,"),
        ("cache", "<5"),
        ("predicted", ">9"),
        ("real", ">9"),
        ("off", "+6.1%"),
        ("resident", ">9"),
    )
    for context, kv_type in product(options.contexts, options.kv_types):
        predicted = sum(_predicted(path, context, kv_type) for path in options.models)
        total, resident = _measured(options.models, context, kv_type)
        table.print_row(
            context,
            kv_type,
            format_bytes(predicted),
            format_bytes(total),
            predicted / total - 1,
            format_bytes(resident),
        )


if __name__ == "__main__":
    main()
