"""Compute thread: the thread that decodes where texts are generated in several threads.

The library's OpenMP keeps a team of worker threads for each thread that decodes. As soon as the
teams together have more threads than the machine has cores, they no longer wait actively for each
other, and a pass takes a fifth longer. One thread that decodes for all others needs one team.
"""

import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Generic, TypeVar

_Result = TypeVar("_Result")
_LIBRARIES = ("libgomp.so.1", "libomp.so", "libomp.dylib", "libiomp5.so")
_SOFT = 1
_NAME = "localspec-compute"
_threads: list[ThreadPoolExecutor] = []


def start() -> None:
    """From now on, `run` uses the compute thread; the calling thread gives up its own team."""
    if not _threads:
        _threads.append(ThreadPoolExecutor(1, _NAME))
        _give_up_team()


def is_current() -> bool:
    """Whether the calling thread is the compute thread, for which another one waits."""
    return threading.current_thread().name.startswith(_NAME)


def run(compute: Callable[[], _Result]) -> _Result:
    """Call `compute` in the compute thread if there is one, else here; wait for its end.

    An interrupt is raised after that: the library must not be used while it computes.
    """
    if not _threads:
        return compute()
    task, interrupt = _Task(compute), None
    while True:
        try:
            while not task.ended.is_set():
                _submit(task)
                task.ended.wait()
            break
        except BaseException as raised:
            interrupt = raised
    if interrupt is not None:
        raise interrupt
    return task.result()


def _submit(task: "_Task[_Result]") -> None:
    """Let the compute thread run a task, or run it here."""
    try:
        _threads[0].submit(task.run)
    except RuntimeError:  # the interpreter ends: the compute thread already has
        task.run()


class _Task(Generic[_Result]):
    """A computation, which runs once although an interrupted thread may submit it twice."""

    def __init__(self, compute: Callable[[], _Result]) -> None:
        self.ended = threading.Event()
        self._compute = compute
        self._future: Future[_Result] | None = None

    def run(self) -> None:
        """Compute; called in the compute thread only."""
        if self._future is not None:
            return
        self._future = Future()
        try:
            self._future.set_result(self._compute())
        except BaseException as error:
            self._future.set_exception(error)
        finally:
            self.ended.set()

    def result(self) -> _Result:
        """The result; raises what the computation raised."""
        assert self._future is not None
        return self._future.result()


def _give_up_team() -> None:
    """End the worker threads of the calling thread, where OpenMP 5 is what the library uses."""
    for name in _LIBRARIES:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(name).omp_pause_resource_all(_SOFT)
            return
