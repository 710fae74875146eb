"""Calibration: measure what passes and drafts take on this machine, once, and remember it."""

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from time import perf_counter

from localspec.control.cost_profile import CostProfile, DrafterSeconds
from localspec.control.pass_costs import WIDEST
from localspec.llama import extra_buffers, library
from localspec.llama.batch_invariance import seconds_of_pass
from localspec.llama.context import Context
from localspec.llama.devices import can_offload
from localspec.loading.config import RuntimeConfig
from localspec.utils.paths import cache_file, stat_signature, write_atomically

# The most time that measuring one model may take; at least widths 1 and 4 are measured.
_BUDGET = 0.8
# In this order, as far as the budget goes: what lies between is interpolated.
_WIDTHS = (1, 4, 2, 8, 3, 16, 5, 6, 7, 12, 32, 24)
_SLOW = 0.02
# So many tokens are read to see what reading takes, and more where that was done in no time: a GPU
# reads many at once as quickly as a few.
_READ, _READ_MORE, _QUICK = 64, 512, 0.005


def calibrate(
    target: Context,
    drafters: Mapping[str, Context],
    runtime: RuntimeConfig,
    known: CostProfile | None = None,
) -> CostProfile:
    """Measure these models, or read what was measured of them on this machine before.

    drafters: caches of draft models, by the drafter's name. known: what was measured of the target
    with other drafters. Measuring empties the drafters' caches, and the target's unless it is
    known.
    """
    paths = _paths(drafters)
    if before := remembered(target.model.path, paths, runtime):
        return before
    passes = known.passes if known else _passes(target)
    measured = CostProfile(passes, {name: _drafter(each) for name, each in drafters.items()})
    with suppress(OSError):  # then it is measured again next time
        file = _file(target.model.path, paths, runtime)
        write_atomically(file, json.dumps(asdict(measured)))
    return measured


def remembered(
    target: Path, drafters: Sequence[Path], runtime: RuntimeConfig
) -> CostProfile | None:
    """What was measured of the models in these files on this machine before, if anything was."""
    try:
        record = json.loads(_file(target, drafters, runtime).read_text())
        passes = {int(rows): float(seconds) for rows, seconds in record["passes"].items()}
        times = {name: _seconds(each) for name, each in record["drafters"].items()}
        found = CostProfile(passes, times)
        return found if passes.keys() >= {1, 4} and found.is_plausible else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # not measured yet, or not readable


def forget(target: Context, drafters: Mapping[str, Context], runtime: RuntimeConfig) -> None:
    """Delete a profile that proved wrong, so that the next load measures again."""
    with suppress(OSError):
        _file(target.model.path, _paths(drafters), runtime).unlink(missing_ok=True)


def _paths(drafters: Mapping[str, Context]) -> list[Path]:
    return [context.model.path for context in drafters.values()]


def _seconds(record: Mapping[str, float]) -> DrafterSeconds:
    return DrafterSeconds(**{name: float(seconds) for name, seconds in record.items()})


def _file(target: Path, drafters: Sequence[Path], runtime: RuntimeConfig) -> Path:
    """Named by whatever changes what a pass takes."""
    files = [stat_signature(path) for path in (target, *drafters)]
    machine = [platform.node(), platform.machine(), os.cpu_count(), can_offload()]
    kernels = [*library.build_signature(), extra_buffers.usable()]
    return cache_file("costs", [files, machine, asdict(runtime), kernels])


def _passes(context: Context) -> dict[int, float]:
    began, found = perf_counter(), dict[int, float]()
    context.truncate(0)
    for width in _WIDTHS:
        if width > min(WIDEST, context.n_ctx):
            continue
        if len(found) >= 2 and perf_counter() - began > _BUDGET:
            break
        found[width] = _typical(lambda width=width: seconds_of_pass(context, width))  # type: ignore[misc]
    context.truncate(0)
    return found


def _drafter(context: Context) -> DrafterSeconds:
    context.truncate(0)
    further = _typical(lambda: seconds_of_pass(context, 1))
    first = _typical(lambda: seconds_of_pass(context, min(2, context.n_ctx)))
    reading = _reading(context)
    context.truncate(0)
    return DrafterSeconds(first, further, reading)


def _reading(context: Context) -> float:
    """Of each token of a text."""
    few, more = min(_READ, context.n_ctx), min(_READ_MORE, context.n_ctx)
    took = _typical(lambda: _seconds_of_reading(context, few))
    if took > _QUICK:
        return took / few
    return min(took / few, _typical(lambda: _seconds_of_reading(context, more)) / more)


def _seconds_of_reading(context: Context, count: int) -> float:
    context.truncate(0)
    began = perf_counter()
    context.extend([0] * count)
    return perf_counter() - began


def _typical(measure: Callable[[], float]) -> float:
    """The best of a few: other programs can only make it slower, and a GPU's first passes of a kind
    take many times as long.
    """
    best = min(measure(), measure())
    return min(best, *(measure() for _ in range(3))) if best < _SLOW else best
