"""GPU check: each GPU is tried out before a build of llama.cpp first computes on it.

llama.cpp ends the process where it was compiled for other GPUs, and with some drivers it computes
wrong numbers without an error. That a GPU works is remembered; that it does not is found out anew
by each process, as a new driver may have mended it.
"""

from contextlib import suppress
from typing import Any

from localspec.errors import ExactnessError, ModelLoadError
from localspec.llama import library, unfit_gpus
from localspec.llama.devices import Device, devices, usual_gpus
from localspec.llama.gpu_trial import run_gpu_trial
from localspec.llama.placement import Placement
from localspec.loading.config import RuntimeConfig
from localspec.models import registry
from localspec.utils.child_process import ChildExit
from localspec.utils.paths import cache_file
from localspec.utils.stored_json import stored, try_to_store

# A trial takes about two seconds, and minutes where a driver compiles kernels first. These stay in
# the driver's cache, so that a later trial comes further.
_SECONDS = 120
_KEY = "works"


def check_gpus(runtime: RuntimeConfig) -> None:
    """Try out the GPUs that models may be on, as far as they are unknown.

    Those that do not work are not used by this process. Raises ModelLoadError for one that the user
    has named.
    """
    for placement in filter(None, (runtime.placement, runtime.drafter_placement)):
        _check(placement)


def _check(placement: Placement) -> None:
    gpus = {device.name.lower(): device for device in devices() if device.is_gpu}
    if placement.devices is None:
        # Also without layers on it: then it still computes wide passes. Where none is left, the
        # usual one is that of the processor.
        tried = set[str]()
        while untried := [name for name in usual_gpus() if name not in tried]:
            tried.add(untried[0])
            _try_out(gpus[untried[0].lower()])
        return
    for gpu in (gpus[name.lower()] for name in placement.devices if name.lower() in gpus):
        _try_out(gpu)
        if reason := unfit_gpus.reason(gpu.name):
            raise ModelLoadError(
                f"device {gpu.name} ({gpu.description}) cannot be used: {reason}; choose another "
                "--device, or none; localspec doctor says more"
            )


def _try_out(gpu: Device) -> None:
    file = cache_file("gpu_trials", [*library.build_signature(), gpu.name, gpu.description])
    if unfit_gpus.reason(gpu.name) or stored(file, _works):
        return
    target = registry.bundled().target
    with suppress(OSError):  # no process can be started: loading meets the same
        ended = run_gpu_trial(
            target, gpu.name, seconds=_SECONDS, action=f"trying out {gpu.description}"
        )
        if ended.exit_code == 0:
            try_to_store(file, {_KEY: True})
        elif ended.exit_code == ExactnessError.exit_code:
            unfit_gpus.add(gpu.name, ended.last_error)
        elif ended.crashed:
            unfit_gpus.add(gpu.name, f"llama.cpp ended there ({_cause(ended)})")


def _cause(ended: ChildExit) -> str:
    """Return the first error in the library's log, else how the process ended."""
    errors = (line.strip() for line in ended.errors.splitlines() if "error" in line.lower())
    return next(errors, ended.reason)[:200]


def _works(record: Any) -> bool:
    if record[_KEY] is not True:
        raise ValueError("not a result")
    return True
