"""Compute thread: the thread that decodes where texts are generated in several threads.

The library's OpenMP keeps a team of worker threads for each thread that decodes. As soon as the
teams together have more threads than the machine has cores, they no longer wait actively for each
other, and a pass takes a fifth longer. One thread that decodes for all others needs one team.
"""

import ctypes
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

_Result = TypeVar("_Result")
_LIBRARIES = ("libgomp.so.1", "libomp.so", "libomp.dylib", "libiomp5.so")
_SOFT = 1
_threads: list[ThreadPoolExecutor] = []


def start() -> None:
    """From now on, `run` uses the compute thread; the calling thread gives up its own team."""
    if not _threads:
        _threads.append(ThreadPoolExecutor(1, "localspec-compute"))
        _give_up_team()


def run(compute: Callable[[], _Result]) -> _Result:
    """Call `compute` in the compute thread if there is one, else here; wait for its end.

    An interrupt is raised after that: the library must not be used while it computes.
    """
    if not _threads:
        return compute()
    running = _threads[0].submit(compute)
    interrupt = _interrupt_until_done(running)
    if interrupt:
        raise interrupt
    return running.result()


def _interrupt_until_done(running: "Future[_Result]") -> BaseException | None:
    interrupt: BaseException | None = None
    while not running.done():
        try:
            running.exception()
        except BaseException as raised:
            interrupt = raised
    return interrupt


def _give_up_team() -> None:
    """End the worker threads of the calling thread, where OpenMP 5 is what the library uses."""
    for name in _LIBRARIES:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(name).omp_pause_resource_all(_SOFT)
            return
