"""CostProfile: what passes of two models take on this machine, measured once and remembered."""

import json
import os
import platform
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from localspec.control.cost_model import WIDEST, DrafterCost, Widths
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


@dataclass(frozen=True, slots=True)
class CostProfile:
    """Seconds of the target's passes by width; of the drafter's first and further token, and of a
    token of text it reads. None without a drafter that is a model.
    """

    target: dict[int, float]
    drafter: tuple[float, float, float] | None

    def widths(self) -> Widths:
        """To start learning from."""
        return Widths(self.target)

    @property
    def is_plausible(self) -> bool:
        """Whether a drafter's token takes less than the target's: else it would never draft, so
        that nobody would learn if that was only what the machine did meanwhile.
        """
        return self.drafter is None or self.drafter[1] < self.target[1]

    def step(self, depth: int) -> float:
        """What a step with a draft of so many tokens takes, in steps of plain decoding."""
        widths, drafting = self.widths(), self.drafter_cost()
        taken = drafting.first + (depth - 1) * drafting.further
        return (widths.seconds(depth + 1) + taken) / widths.seconds(1)

    def drafter_cost(self) -> DrafterCost:
        """To start learning from."""
        return DrafterCost(*self.drafter) if self.drafter else DrafterCost()


def pace(
    target: Context,
    drafter: Context | None,
    runtime: RuntimeConfig,
    known: CostProfile | None = None,
) -> CostProfile:
    """Of these two, from the user's cache if they were measured here before.

    known: what was measured of the target with another drafter. Measuring empties both contexts,
    the target's unless it is known.
    """
    paths = target.model.path, drafter.model.path if drafter else None
    if before := remembered(*paths, runtime):
        return before
    widths = known.target if known else _target(target)
    measured = CostProfile(widths, _drafter(drafter) if drafter else None)
    with suppress(OSError):  # then it is measured again next time
        write_atomically(_file(*paths, runtime), json.dumps(asdict(measured)))
    return measured


def remembered(target: Path, drafter: Path | None, runtime: RuntimeConfig) -> CostProfile | None:
    """Of the models in these files, if they were measured here before."""
    try:
        record = json.loads(_file(target, drafter, runtime).read_text())
        widths = {int(width): float(seconds) for width, seconds in record["target"].items()}
        found = CostProfile(widths, _triple(record["drafter"]))
        return found if widths.keys() >= {1, 4} and found.is_plausible else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # not measured yet, or not readable


def forget(target: Context, drafter: Context | None, runtime: RuntimeConfig) -> None:
    """It turned out wrong, perhaps measured on a busy machine: measure again next time."""
    with suppress(OSError):
        paths = target.model.path, drafter.model.path if drafter else None
        _file(*paths, runtime).unlink(missing_ok=True)


def _triple(costs: list[float] | None) -> tuple[float, float, float] | None:
    if costs is None:
        return None
    first, further, reading = costs
    return float(first), float(further), float(reading)


def _file(target: Path, drafter: Path | None, runtime: RuntimeConfig) -> Path:
    """By whatever changes what a pass takes."""
    files = [stat_signature(path) for path in (target, drafter) if path]
    machine = [platform.node(), platform.machine(), os.cpu_count(), can_offload()]
    kernels = [*library.build_signature(), extra_buffers.usable()]
    return cache_file("pace", [files, machine, asdict(runtime), kernels])


def _target(context: Context) -> dict[int, float]:
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


def _drafter(context: Context) -> tuple[float, float, float]:
    context.truncate(0)
    further = _typical(lambda: seconds_of_pass(context, 1))
    first = _typical(lambda: seconds_of_pass(context, min(2, context.n_ctx)))
    reading = _reading(context)
    context.truncate(0)
    return first, further, reading


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
