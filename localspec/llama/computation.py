"""Computation: a decode from its start to its end on every device, and whether it failed."""

from collections.abc import Callable, Hashable
from typing import Any

import llama_cpp

from localspec.errors import DeviceError, PassError
from localspec.llama import compute_thread, library, wait_policy
from localspec.llama.model import Model
from localspec.utils.native_fault import end_at_fault
from localspec.utils.running_clock import running_clock

# The library's status where a device has failed.
_FAILED = -3


def compute(
    decode: Callable[[], int], model: Model, handle: Any, *, rows: int, kind: Hashable, threads: int
) -> float:
    """Call `decode`, which returns the library's status; return the seconds that it takes.

    handle: of the library's context. kind: what computes the same, for the waiting of threads.

    Raises WorkerError, DeviceError, and PassError for another failure.
    """

    def run() -> tuple[int, bool]:
        failed, status = library.failed_later(), decode()
        # A GPU or another machine still computes when the library returns.
        llama_cpp.llama_synchronize(handle)
        return status, library.failed_later() > failed

    model.clear_log()
    with wait_policy.of_process().during(kind, threads):
        began = running_clock()
        try:
            status, is_lost = compute_thread.run(run, model.thread)
        except OSError as fault:
            end_at_fault(fault)
            raise
        seconds = running_clock() - began
    model.require_workers()
    if status == 0 and not is_lost:
        return seconds
    error = DeviceError if is_lost or status == _FAILED else PassError
    reason = library.first_error() or "no reason given"
    raise error(f"llama.cpp could not evaluate {rows} tokens (status {status}, {reason})")
