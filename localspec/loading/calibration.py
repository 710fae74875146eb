"""Calibration: measure the seconds of passes and drafts on this machine once, and store them."""

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
from localspec.llama.devices import can_offload
from localspec.llama.sequence import KVSequence
from localspec.loading.config import RuntimeConfig
from localspec.utils.paths import cache_file, stat_signature, write_atomically

# The most seconds for measuring one model; widths 1 and 4 are always measured.
_BUDGET = 0.8
# The order of measuring, until the budget is used up; other widths are interpolated.
_WIDTHS = (1, 4, 2, 8, 3, 16, 5, 6, 7, 12, 32, 24)
# A pass that takes less is measured three times more.
_SLOW_PASS = 0.02
# Reading is measured with few tokens; if that takes less than _QUICK_READ seconds, with many tokens
# too: a GPU reads many tokens in one pass as fast as a few.
_FEW, _MANY, _QUICK_READ = 64, 512, 0.005


def calibrate(
    target: KVSequence,
    drafters: Mapping[str, KVSequence],
    runtime: RuntimeConfig,
    known: CostProfile | None = None,
) -> CostProfile:
    """Measure these models, or read their stored profile.

    drafters: the caches of draft models, by the drafter's name. known: a profile of the same target
    with other drafters. Measuring empties the drafters' caches, and without `known` also the
    target's cache.
    """
    paths = {name: context.model.path for name, context in drafters.items()}
    if before := remembered(target.model.path, paths, runtime):
        return before
    passes = known.passes if known else _passes(target)
    measured = CostProfile(passes, {name: _drafter(each) for name, each in drafters.items()})
    with suppress(OSError):  # the next load measures again
        file = _file(target.model.path, [*paths.values()], runtime)
        write_atomically(file, json.dumps(asdict(measured)))
    return measured


def remembered(
    target: Path, drafters: Mapping[str, Path], runtime: RuntimeConfig
) -> CostProfile | None:
    """Return the stored profile of these files on this machine, or None.

    drafters: the files of draft models, by the drafter's name.
    """
    try:
        record = json.loads(_file(target, [*drafters.values()], runtime).read_text())
        passes = {int(rows): float(seconds) for rows, seconds in record["passes"].items()}
        times = {name: _seconds(each) for name, each in record["drafters"].items()}
        found = CostProfile(passes, times)
        # The same file may have been loaded by another name, through a link.
        is_whole = passes.keys() >= {1, 4} and times.keys() == drafters.keys()
        return found if is_whole and found.is_plausible else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # not measured yet, or the file is damaged


def forget(target: KVSequence, drafters: Mapping[str, KVSequence], runtime: RuntimeConfig) -> None:
    """Delete the stored profile, so that the next load measures again."""
    with suppress(OSError):
        paths = [context.model.path for context in drafters.values()]
        _file(target.model.path, paths, runtime).unlink(missing_ok=True)


def _seconds(record: Mapping[str, float]) -> DrafterSeconds:
    return DrafterSeconds(**{name: float(seconds) for name, seconds in record.items()})


def _file(target: Path, drafters: Sequence[Path], runtime: RuntimeConfig) -> Path:
    """The file of a profile; its name depends on everything that changes the time of a pass."""
    files = [stat_signature(path) for path in (target, *drafters)]
    machine = [platform.node(), platform.machine(), os.cpu_count(), can_offload()]
    kernels = [*library.build_signature(), extra_buffers.usable()]
    return cache_file("costs", [files, machine, asdict(runtime), kernels])


def _passes(context: KVSequence) -> dict[int, float]:
    began, found = perf_counter(), dict[int, float]()
    context.truncate(0)
    for width in _WIDTHS:
        if width > min(WIDEST, context.n_ctx):
            continue
        if len(found) >= 2 and perf_counter() - began > _BUDGET:
            break
        found[width] = _least_seconds(lambda width=width: seconds_of_pass(context, width))  # type: ignore[misc]
    context.truncate(0)
    return found


def _drafter(context: KVSequence) -> DrafterSeconds:
    context.truncate(0)
    further = _least_seconds(lambda: seconds_of_pass(context, 1))
    first = _least_seconds(lambda: seconds_of_pass(context, min(2, context.n_ctx)))
    reading = _reading(context)
    context.truncate(0)
    return DrafterSeconds(first, further, reading)


def _reading(context: KVSequence) -> float:
    """Seconds of each token of a text that is read."""
    few, more = min(_FEW, context.n_ctx), min(_MANY, context.n_ctx)
    took = _least_seconds(lambda: _seconds_of_reading(context, few))
    if took > _QUICK_READ:
        return took / few
    return min(took / few, _least_seconds(lambda: _seconds_of_reading(context, more)) / more)


def _seconds_of_reading(context: KVSequence, count: int) -> float:
    context.truncate(0)
    began = perf_counter()
    context.extend([0] * count)
    return perf_counter() - began


def _least_seconds(measure: Callable[[], float]) -> float:
    """The least of a few measurements: other programs only make a pass slower, and a GPU's first
    passes of a kind take many times as long.
    """
    best = min(measure(), measure())
    return min(best, *(measure() for _ in range(3))) if best < _SLOW_PASS else best
