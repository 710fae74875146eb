"""Calibration: the seconds of passes and drafts on this machine, measured once and stored."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from localspec.control.base_costs import WIDEST
from localspec.control.cost_profile import CostProfile, DrafterSeconds
from localspec.control.pass_costs import PassCosts
from localspec.llama.context_params import CHUNK
from localspec.llama.rollback import SNAPSHOTS, Rollback
from localspec.llama.sequence import KVSequence
from localspec.loading.config import RuntimeConfig
from localspec.loading.cost_measurement import costs_of_target
from localspec.loading.fingerprints import machine_signature
from localspec.loading.threads import busy_cores
from localspec.utils.busy_cores import BUSY, BusyCores
from localspec.utils.paths import cache_file, stat_signature
from localspec.utils.stored_json import stored, try_to_store

# In fewer seconds nothing can be said about other programs.
_WATCHED = 0.1
# The way of a model that draws all tokens of a draft from one pass.
IN_ONE_PASS = "in one pass"


@dataclass(frozen=True, slots=True)
class Measured:
    """A drafter whose cost is measured.

    path: of its file. seconds: measures it. way: tells apart the drafters that one file can be.
    """

    path: Path
    seconds: Callable[[], DrafterSeconds]
    way: str = ""


def calibrate(
    target: KVSequence,
    drafters: Mapping[str, Measured],
    runtime: RuntimeConfig,
    known: CostProfile | None = None,
) -> CostProfile:
    """Measure these models, or read their stored profile.

    drafters: by their names. known: a profile of the same target with other drafters. Measuring
    empties the drafters' caches, and without `known` also the target's cache. What was measured
    while other programs were busy is measured again once the machine is quiet.
    """
    file = _file_of(target, drafters, runtime)
    before = _usable(file, drafters)
    if before and (known or not before.busy or busy_cores() >= BUSY):
        return before
    cores = BusyCores()
    found = known or costs_of_target(target)
    seconds = {name: each.seconds() for name, each in drafters.items()}
    busy = known.busy if known else (cores.mean(_WATCHED) or 0.0) >= BUSY
    measured = replace(found, drafters=seconds, busy=busy)
    try_to_store(file, asdict(measured))
    return measured


def remembered(
    target: Path,
    drafters: Mapping[str, Path],
    runtime: RuntimeConfig,
    ways: Sequence[str] = (),
    snapshots: int | None = None,
) -> CostProfile | None:
    """Return the stored profile of these files on this machine, or None.

    drafters: the files of draft models, by the drafter's name. ways: as in Measured, of those that
    have one. snapshots: those that the target's cache makes; None: however many.
    """
    with suppress(OSError):  # a model file is gone
        for each in range(SNAPSHOTS + 1) if snapshots is None else (snapshots,):
            if found := _usable(_file(target, [*drafters.values()], runtime, ways, each), drafters):
                return found
    return None


def _usable(file: Path, names: Collection[str]) -> CostProfile | None:
    """The profile in a file, if it is one of drafters of these names, and plausible."""
    found = stored(file, _profile)
    # The same file may have been loaded by another name, through a link.
    return found if found and found.drafters.keys() == set(names) and found.is_plausible else None


def keep(
    target: KVSequence,
    drafters: Mapping[str, Measured],
    runtime: RuntimeConfig,
    run: PassCosts,
) -> None:
    """Add to the stored profile what the passes of a run took, as a start for the next one."""
    file = _file_of(target, drafters, runtime)
    before = _usable(file, drafters)
    after = before and before.after(run)
    if after and after is not before:
        try_to_store(file, asdict(after))


def forget(target: KVSequence, drafters: Mapping[str, Measured], runtime: RuntimeConfig) -> None:
    """Delete the stored profile, so that the next load measures again."""
    with suppress(OSError):
        _file_of(target, drafters, runtime).unlink(missing_ok=True)


def _ways(drafters: Mapping[str, Measured]) -> list[str]:
    return [each.way for each in drafters.values() if each.way]


def _snapshots(target: KVSequence) -> int:
    """The snapshots of the target's cache, which make its passes slower; 0 where it has none."""
    return target.context.params.snapshots if target.rollback is Rollback.BOUNDED else 0


def _profile(record: Any) -> CostProfile:
    passes, learnt = _by_rows(record["passes"]), _by_rows(record["learnt"])
    if not passes.keys() >= {1, 4}:
        raise ValueError("no seconds of every pass")
    drafters = {name: _seconds(each) for name, each in record["drafters"].items()}
    unseen = {_rows(rows): int(runs) for rows, runs in record["unseen"].items()}
    change = _time(record["change"])
    return CostProfile(passes, drafters, bool(record["busy"]), learnt, unseen, change)


def _by_rows(record: Mapping[str, float]) -> dict[int, float]:
    passes = {_rows(rows): _time(seconds) for rows, seconds in record.items()}
    if not all(passes.values()):
        raise ValueError("a pass of no time")
    return passes


def _seconds(record: Mapping[str, float]) -> DrafterSeconds:
    return DrafterSeconds(**{name: _time(seconds) for name, seconds in record.items()})


def _time(seconds: float) -> float:
    if not math.isfinite(float(seconds)) or seconds < 0:
        raise ValueError("not a time")
    return float(seconds)


def _rows(rows: str) -> int:
    if not 1 <= int(rows) <= WIDEST:
        raise ValueError("not a width")
    return int(rows)


def _file_of(target: KVSequence, drafters: Mapping[str, Measured], runtime: RuntimeConfig) -> Path:
    """The file of the profile of these loaded models."""
    paths = [each.path for each in drafters.values()]
    return _file(target.model.path, paths, runtime, _ways(drafters), _snapshots(target))


def _file(
    target: Path,
    drafters: Sequence[Path],
    runtime: RuntimeConfig,
    ways: Sequence[str] = (),
    snapshots: int = 0,
) -> Path:
    """The file of a profile; its name depends on everything that changes the time of a pass."""
    files = [stat_signature(path) for path in (target, *drafters)]
    machine, build = machine_signature()
    options = replace(runtime, ubatch=runtime.ubatch or CHUNK).costs_depend_on
    return cache_file("costs", [files, *ways, snapshots, machine, options, build])
