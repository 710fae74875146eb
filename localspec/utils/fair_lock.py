"""FairLock: a lock whose waiting threads get it in the order in which they asked."""

import os
import threading
from collections import deque

from localspec.errors import LocalspecError

# How many forks lie between this process and the first one.
_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_count_fork)


class FairLock:
    """A reentrant lock for `with` statements, first come, first served.

    A plain lock may be taken again by the thread that has just released it, ahead of threads that
    have waited longer. It is reentrant because the garbage collector may close a model in the
    middle of anything, also in the thread that holds the lock.

    A forked process has none of the threads that would release the lock, or compute what it guards:
    there, taking it raises LocalspecError. forked: what the error says.
    """

    def __init__(self, forked: str = "this lock belongs to the process before the fork") -> None:
        self._forks, self._forked = _forks, forked
        self._guard = threading.RLock()
        self._owner: int | None = None
        self._count = 0
        self._waiting: deque[tuple[int, threading.Lock]] = deque()
        self._sleeping: set[threading.Lock] = set()

    @property
    def is_forked(self) -> bool:
        """Whether the lock was made in another process, of which this one is a fork."""
        return self._forks != _forks

    @property
    def is_held(self) -> bool:
        """Whether some thread has it, this one or another."""
        return self._owner is not None

    def __enter__(self) -> None:
        if self._forks != _forks:
            raise LocalspecError(self._forked)
        thread = threading.get_ident()
        with self._guard:
            if self._owner in (None, thread):
                self._owner = thread
                self._count += 1
                return
            ready = threading.Lock()
            ready.acquire()
            self._waiting.append((thread, ready))
        try:
            ready.acquire()
        except BaseException:
            self._stop_waiting(thread, ready)
            raise

    def __exit__(self, *_exc: object) -> None:
        with self._guard:
            self._count -= 1
            if self._count > 0:
                return
            self._owner, self._count = None, 0
            if self._waiting:
                # The next thread owns the lock from here on, so that no other takes it first.
                self._owner, ready = self._waiting.popleft()
                self._count = 1
                ready.release()

    def wait(self, seconds: float | None = None) -> None:
        """Release the lock until `notify_all` is called, at most for `seconds`; then take it again.

        The calling thread holds the lock, however often it has taken it.
        """
        sleeper = threading.Lock()
        sleeper.acquire()
        self._sleeping.add(sleeper)
        count, self._count = self._count, 1
        try:
            self.__exit__()
            sleeper.acquire(timeout=-1 if seconds is None else max(0.0, seconds))
        finally:
            self._take_again(count)
            self._sleeping.discard(sleeper)

    def notify_all(self) -> None:
        """Wake all threads in `wait`. The calling thread holds the lock."""
        sleeping, self._sleeping = self._sleeping, set()
        for sleeper in sleeping:
            sleeper.release()

    def _take_again(self, count: int) -> None:
        """Take the lock, also if the thread is interrupted: a `with` will release it."""
        interrupt: BaseException | None = None
        while self._owner != threading.get_ident() and not self.is_forked:
            try:
                self.__enter__()
            except BaseException as raised:
                interrupt = raised
        self._count = count
        if interrupt:
            raise interrupt

    def _stop_waiting(self, thread: int, ready: threading.Lock) -> None:
        """Leave the queue after an interrupt; release the lock if the thread had just got it."""
        with self._guard:
            if (thread, ready) in self._waiting:
                self._waiting.remove((thread, ready))
                return
        self.__exit__()
