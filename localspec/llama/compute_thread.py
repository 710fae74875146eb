"""Compute thread: the thread that decodes where texts are generated in several threads.

The library's OpenMP keeps a team of worker threads for each thread that decodes. As soon as the
teams together have more threads than the machine has cores, they no longer wait actively for each
other, and a pass takes a fifth longer. One thread that decodes for all others needs one team.

Python's own thread pools, events and futures take locks of Python code, which Ctrl-C in the main
thread may leave locked for ever. Here all that a thread waits for is set by a single call of C.
"""

import _thread
import atexit
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar
from weakref import finalize

from localspec.llama import openmp
from localspec.utils.host_memory import address_space

_Result = TypeVar("_Result")
_Work = Callable[[], object]
_threads: list["OwnThread"] = []
# In seconds. Ctrl-C ends no wait for a lock on Windows, and elsewhere none that begins just then.
_LOOK_EVERY = 0.1
# Those of all threads that compute.
_idents: set[int] = set()


def start() -> None:
    """From now on, `run` uses the compute thread; the calling thread gives up its own team."""
    if not _threads:
        _threads.append(OwnThread())
        openmp.give_up_team()


def is_current() -> bool:
    """Whether the calling thread is one that computes, for which another one waits."""
    return threading.get_ident() in _idents


def run(compute: Callable[[], _Result], own: "OwnThread | None" = None) -> _Result:
    """Call `compute` in the compute thread if there is one, else here; wait for its end.

    own: the thread to call it in instead. An interrupt is raised after the end: the library must
    not be used while it computes.
    """
    if own:
        return compute() if own.is_current else own.task(compute).result()
    if not _threads:
        return compute()
    return _threads[0].task(compute).result()


def shielded(
    call: Callable[[], _Result],
    *,
    stop: Callable[[], object] = lambda: None,
    free: Callable[[_Result], object] = lambda _: None,
) -> _Result:
    """Call what no interrupt may come into, such as a function of the library that calls back.

    Python's main thread looks for signals at the first instruction of a callback, and ctypes
    prints and forgets what is raised there. So that thread waits, and another one calls. An
    interrupt is raised when the call has ended. stop: called meanwhile, to end the call early.
    free: called with the result that an interrupt leaves to nobody.
    """
    in_main_thread = threading.get_ident() == threading.main_thread().ident
    # A thread that is started while the interpreter is torn down never runs; and one takes tens of
    # megabytes of addresses, which `ulimit -v` may not leave.
    if sys.is_finalizing() or not in_main_thread or address_space() is not None:
        return call()
    task = Task(partial(copy_context().run, call), _start)
    try:
        return task.result(stop)
    except BaseException:
        for found in task.found:
            free(found)
        raise


def _start(work: _Work) -> None:
    """Do some work in a new thread."""

    def do() -> None:
        ident = threading.get_ident()
        _idents.add(ident)
        try:
            work()
        finally:
            _idents.discard(ident)

    _thread.start_new_thread(do, ())


class OwnThread(Executor):
    """A thread that computes for one model, while other threads compute for others.

    It computes all passes of the model, so that these have one team of worker threads. It ends with
    `close`, when nothing refers to it, and with the interpreter.
    """

    def __init__(self) -> None:
        self._work = _Works()
        # First: what ends the thread waits for that.
        _thread.start_new_thread(self._work.do, ())
        finalize(self, self._work.end).atexit = False
        atexit.register(self._work.end)

    @property
    def is_current(self) -> bool:
        """Whether it is the calling thread."""
        return threading.get_ident() == self._work.ident

    def task(self, compute: Callable[[], _Result]) -> "Task[_Result]":
        """A computation for this thread."""
        return Task(compute, self._work.put)

    def submit(  # type: ignore[override]
        self, compute: Callable[..., _Result], /, *arguments: Any
    ) -> Future[_Result]:
        """Let the thread run it, as executors do; not for a thread that may be interrupted."""
        future: Future[_Result] = Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(compute(*arguments))
                except BaseException as error:
                    future.set_exception(error)

        self._work.put(work)
        return future

    def close(self) -> None:
        """End the thread, and with it its team."""
        self._work.end()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As `close`, which waits in any case."""
        self.close()


class _Works:
    """What a thread has to do; the thread refers to this only. ident: the thread's."""

    def __init__(self) -> None:
        self.ident: int | None = None
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._has_ended = threading.Lock()
        self._has_ended.acquire()
        self._ends = False
        self._process = os.getpid()

    def put(self, work: _Work) -> None:
        """Let the thread do it; where that has ended, do it here."""
        self._queue.put(work)
        if self._ends:
            with self._has_ended, suppress(Empty):
                while True:
                    if left := self._queue.get_nowait():
                        left()

    def end(self) -> None:
        """End the thread when it has done what was put before; wait for that."""
        atexit.unregister(self.end)
        self._ends = True
        self._queue.put(None)
        # A process that was forked does not have the thread.
        if self.ident != threading.get_ident() and os.getpid() == self._process:
            with self._has_ended:
                pass

    def do(self) -> None:
        """Do what is put; called in the thread."""
        self.ident = threading.get_ident()
        _idents.add(self.ident)
        try:
            while work := self._queue.get():
                work()
                del work
        finally:
            _idents.discard(self.ident)
            self.ident = None
            self._has_ended.release()


class Task(Generic[_Result]):
    """A computation in a thread, which runs once although it may be submitted twice.

    start: lets a thread run something. found: the result, once it has ended without an error.
    """

    def __init__(self, compute: Callable[[], _Result], start: Callable[[_Work], object]) -> None:
        # Held until the end, and maybe by who waited for that: what tells is `_is_over`.
        self._end = threading.Lock()
        self._end.acquire()
        self._compute, self._start = compute, start
        self._has_begun = self._is_over = False
        self.found: list[_Result] = []
        self._error: BaseException | None = None

    def submit(self) -> None:
        """Let the thread run it; where that has ended, or cannot be started, run it here."""
        try:
            self._start(self.run)
        except RuntimeError:
            self.run()

    def wait(
        self,
        before: Callable[[], object] = lambda: None,
        stop: Callable[[], object] = lambda: None,
    ) -> None:
        """Wait for the end; an interrupt is raised after it.

        before: called first in any case. stop: called at an interrupt.
        """
        interrupt = None
        while True:
            try:
                before()
                if interrupt is not None:
                    stop()
                if not self._is_over:
                    self.submit()
                while not self._is_over:
                    self._end.acquire(timeout=_LOOK_EVERY)
                break
            except BaseException as raised:
                interrupt = raised
        if interrupt is not None:
            raise interrupt

    def run(self) -> None:
        """Compute; called in the thread only."""
        # Nothing can come between these, neither an interrupt nor another thread.
        if self._has_begun:
            return
        self._has_begun = True
        try:
            self.found.append(self._compute())
        except BaseException as error:
            self._error = error
        finally:
            self._is_over = True
            self._end.release()

    def result(self, stop: Callable[[], object] = lambda: None) -> _Result:
        """Wait for the result; raises what the computation raised. stop: as of `wait`."""
        self.wait(stop=stop)
        if self._error is None:
            return self.found[0]
        try:
            raise self._error
        finally:
            self._error = None  # its traceback refers to this
