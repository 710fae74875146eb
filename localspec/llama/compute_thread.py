"""Compute thread: the thread that decodes where texts are generated in several threads.

The library's OpenMP keeps a team of worker threads for each thread that decodes. As soon as the
teams together have more threads than the machine has cores, they no longer wait actively for each
other, and a pass takes a fifth longer. One thread that decodes for all others needs one team.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from localspec.llama import openmp

_Result = TypeVar("_Result")
_NAME = "localspec-compute"
_threads: list[ThreadPoolExecutor] = []


def start() -> None:
    """From now on, `run` uses the compute thread; the calling thread gives up its own team."""
    if not _threads:
        _threads.append(ThreadPoolExecutor(1, _NAME))
        openmp.give_up_team()


def is_current() -> bool:
    """Whether the calling thread is one that computes, for which another one waits."""
    return threading.current_thread().name.startswith(_NAME)


def run(compute: Callable[[], _Result], own: "OwnThread | None" = None) -> _Result:
    """Call `compute` in the compute thread if there is one, else here; wait for its end.

    own: the thread to call it in instead. An interrupt is raised after the end: the library must
    not be used while it computes.
    """
    if own:
        return compute() if own.is_current else Task(compute, own.pool).result()
    if not _threads:
        return compute()
    return Task(compute, _threads[0]).result()


class OwnThread:
    """A thread that computes for one model, while other threads compute for others.

    It computes all passes of the model, so that these have one team of worker threads.
    """

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1, f"{_NAME}-own", self._begin)
        self._ident: int | None = None

    @property
    def is_current(self) -> bool:
        """Whether it is the calling thread."""
        return threading.get_ident() == self._ident

    def task(self, compute: Callable[[], _Result]) -> "Task[_Result]":
        """A computation for this thread."""
        return Task(compute, self.pool)

    def close(self) -> None:
        """End the thread, and with it its team."""
        self.pool.shutdown()

    def _begin(self) -> None:
        self._ident = threading.get_ident()


class Task(Generic[_Result]):
    """A computation in a thread, which runs once although it may be submitted twice."""

    def __init__(self, compute: Callable[[], _Result], pool: ThreadPoolExecutor) -> None:
        self.ended = threading.Event()
        self._compute = compute
        self._pool = pool
        self._future: Future[_Result] | None = None

    def submit(self) -> None:
        """Let the thread run it; where that has ended, run it here."""
        try:
            self._pool.submit(self.run)
        except RuntimeError:  # the interpreter ends: thread pools already have
            self.run()

    def wait(self, before: Callable[[], object] = lambda: None) -> None:
        """Wait for the end; an interrupt is raised after it. before: called first in any case."""
        interrupt = None
        while True:
            try:
                before()
                while not self.ended.is_set():
                    self.submit()
                    self.ended.wait()
                break
            except BaseException as raised:
                interrupt = raised
        if interrupt is not None:
            raise interrupt

    def run(self) -> None:
        """Compute; called in the thread only."""
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
        """Wait for the result; raises what the computation raised."""
        self.wait()
        assert self._future is not None
        return self._future.result()
