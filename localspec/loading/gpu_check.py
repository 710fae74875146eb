"""GPU check: each GPU is tried out before a build of llama.cpp first computes on it.

llama.cpp ends the process where it was compiled for other GPUs, and with some drivers it computes
wrong numbers without an error. That a GPU works is remembered for a month; that it does not is
found out anew by each process, as a new driver may have mended it. Only one that was not ready in
time again and again is left alone for a week, as each trial takes two minutes, and one whose wide
passes were not is used, and tried again a day later.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from time import time
from typing import Any

from localspec.errors import ExactnessError, InvalidValueError, ModelLoadError
from localspec.llama import library, unfit_gpus
from localspec.llama.devices import Device, devices, usual_gpus
from localspec.llama.gpu_trial import BEGUN, COMPUTED, RIGHT, WIDE, run_gpu_trial
from localspec.llama.placement import DEFAULT, Placement
from localspec.loading.config import RuntimeConfig
from localspec.models import registry
from localspec.utils import lack_of_memory
from localspec.utils.child_process import FAULT_SIGNALS, ChildExit
from localspec.utils.format import printable
from localspec.utils.option_names import option
from localspec.utils.paths import cache_file
from localspec.utils.stored_json import stored, try_to_store

# A trial takes about two seconds, and minutes where a driver compiles kernels first. These stay in
# the driver's cache, so that a later trial comes further.
_SECONDS = 120
# Where a card is used by another program alone, this may pass as lack of memory does.
_IN_USE = ("notinitialized", "busy", "unavailable")
# Windows ends processes so at Ctrl-C, and for lack of memory.
_WINDOWS_LACK = (0xC000013A, 0xC0000017, 0xC000012D)
# A result holds for so long: nothing tells of a new driver.
_DAY = 86_400.0
_WORKS_FOR, _SLOW_FOR, _MOST_TIMEOUTS = 30 * _DAY, 7 * _DAY, 3
# Where wide passes were not ready in time: the driver has kept what it has compiled of them.
_PARTLY_WORKS_FOR = _DAY
_LONGEST = 200
# Those that were tried by this process, by the name of their file, whatever was found.
_tried: set[str] = set()
_lock = Lock()


@dataclass(frozen=True, slots=True)
class _Known:
    """What earlier trials of a GPU found. timeouts: how often in a row it was not ready in time.

    until: how long this holds, in seconds since 1970.
    """

    works: bool = False
    timeouts: int = 0
    until: float = 0.0

    @classmethod
    def of(cls, record: Any) -> "_Known":
        """What a record says, or nothing if it is too old."""
        known = cls(bool(record["works"]), int(record["timeouts"]), float(record["until"]))
        return known if 0 < known.until - time() <= _WORKS_FOR else cls()


def check_gpus(runtime: RuntimeConfig, *, again: bool = False) -> None:
    """Try out the GPUs that models may be on, as far as they are unknown.

    Those that do not work are not used by this process. again: also those that were not ready in
    time again and again. Raises ModelLoadError for one that the user has named.
    """
    _check(runtime.placement, again=again)
    # Beside a target on other machines, draft models are on the usual GPUs.
    own = runtime.drafter_placement or (DEFAULT if runtime.placement.workers else None)
    if own:
        _check(own, again=again)


def _check(placement: Placement, *, again: bool) -> None:
    gpus = {device.name.lower(): device for device in devices() if device.is_gpu}
    if placement.devices is None:
        # Also without layers on it: then it still computes wide passes. Where none is left, the
        # usual one is that of the processor.
        tried = set[str]()
        while untried := [name for name in usual_gpus() if name not in tried]:
            tried.add(untried[0])
            _try_out(gpus[untried[0].lower()], again=again)
        return
    for gpu in (gpus[name.lower()] for name in placement.devices if name.lower() in gpus):
        _try_out(gpu, again=again)
        if reason := unfit_gpus.reason(gpu.name):
            raise ModelLoadError(
                f"device {gpu.name} ({gpu.description}) cannot be used: {reason}; choose another "
                f"{option('device')}, or none; localspec doctor says more"
            )


def _try_out(gpu: Device, *, again: bool) -> None:
    file = cache_file("gpu_trials", [*library.build_signature(), gpu.name, gpu.description])
    with _lock:
        if file.name in _tried:
            return
        known = stored(file, _Known.of) or _Known()
        if known.timeouts >= _MOST_TIMEOUTS and not again:
            unfit_gpus.add(
                gpu.name, f"it was not ready within {_SECONDS} s, {known.timeouts} times"
            )
        elif not known.works:
            _try(gpu, file, known.timeouts)
        _tried.add(file.name)


def _try(gpu: Device, file: Path, timeouts: int) -> None:
    """Try out a GPU. timeouts: how often it was not ready in time before."""
    target = registry.bundled().target
    try:
        ended = run_gpu_trial(
            target, gpu.name, seconds=_SECONDS, action=f"trying out {gpu.description}"
        )
    except OSError:  # no process can be started, and loading meets the same
        return
    if RIGHT in ended.output:
        try_to_store(file, asdict(_Known(works=True, until=time() + _WORKS_FOR)))
    elif reason := _fault(ended):
        unfit_gpus.add(gpu.name, reason)
        if ended.timed_out:
            try_to_store(file, asdict(_Known(timeouts=timeouts + 1, until=time() + _SLOW_FOR)))
    elif ended.timed_out and WIDE in ended.output:
        try_to_store(file, asdict(_Known(works=True, until=time() + _PARTLY_WORKS_FOR)))


def _fault(ended: ChildExit) -> str | None:
    """Return why the GPU cannot be used; None where the trial tells nothing of it."""
    if ended.exit_code == ExactnessError.exit_code:
        return ended.last_error
    # Before, something else is wrong; a device that is not here in the child is an invalid value.
    is_its_turn = BEGUN in ended.output and COMPUTED not in ended.output
    if not is_its_turn or ended.exit_code == InvalidValueError.exit_code:
        return None
    if ended.timed_out:
        if WIDE in ended.output:  # what is not wide works, and the rest is compiled sooner or later
            return None
        return f"it was not ready within {_SECONDS} s; the next start tries again"
    was_killed = ended.exit_code < 0 and -ended.exit_code not in FAULT_SIGNALS
    may_pass = lack_of_memory.is_said_in(ended.errors, _IN_USE)
    if was_killed or ended.exit_code in _WINDOWS_LACK or may_pass:
        return None
    lines = [line.strip() for line in ended.errors.splitlines() if line.strip()]
    cause = printable((lines or [ended.reason])[0][:_LONGEST])
    return f"llama.cpp failed there ({cause})"
