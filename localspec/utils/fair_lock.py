"""FairLock: a lock whose waiting threads get it in the order in which they asked."""

import os
import threading
from collections.abc import Callable
from itertools import starmap
from typing import Any

from localspec.errors import LocalspecError

# After so many seconds a thread in `wait` looks for itself: an interrupt may have cut off the
# notification.
_LOOK_AGAIN = 1.0
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

    A signal's handler, such as Ctrl-C's, may raise at every call of a Python function and behind
    every other call, also at the first instruction of an `__exit__`. So `with` releases it by the
    `__exit__` of Python's own lock, which is a single call of C; and its parts stay right wherever
    they are interrupted.

    A forked process has none of the threads that would release the lock, or compute what it guards:
    there, taking it raises LocalspecError. forked: what the error says.
    """

    def __init__(self, forked: str = "this lock belongs to the process before the fork") -> None:
        self._forks, self._forked = _forks, forked
        self._lock: Any = threading.RLock()
        self.release: Callable[[], None] = self._lock.release
        self._guard = threading.Lock()
        # Of the thread that asked last; it is free once that has taken the lock, or has given up.
        self._last_turn = threading.Lock()
        # Of the threads that are taking it.
        self._waiting: set[threading.Lock] = set()
        self._sleeping: set[threading.Lock] = set()

    @property
    def is_forked(self) -> bool:
        """Whether the lock was made in another process, of which this one is a fork."""
        return self._forks != _forks

    @property
    def is_held(self) -> bool:
        """Whether some thread has it or asks for it, this one or another."""
        if self._waiting or self._lock._is_owned():
            return True
        try:
            is_free = self._lock.acquire(blocking=False)
            if is_free:
                self.release()
        except BaseException:
            if self._lock._is_owned():
                self.release()
            raise
        return not is_free

    def __enter__(self) -> None:
        if self._forks != _forks:
            raise LocalspecError(self._forked)
        if self._lock._is_owned():
            try:
                self._lock.acquire()
            except BaseException:  # interrupted behind it: here it never waits
                self.release()
                raise
            return
        try:
            self._take(self._lock.acquire)
        except BaseException:
            if self._lock._is_owned():
                self.release()
            raise

    @property
    def __exit__(self) -> Callable[..., None]:
        exit_: Callable[..., None] = self._lock.__exit__
        return exit_

    def _take(self, acquire: Callable[[], Any]) -> None:
        """Call `acquire` when the thread that asked before has the lock, or has given up."""
        turn = threading.Lock()
        turn.acquire()
        try:
            self._waiting.add(turn)
            with self._guard:
                before, self._last_turn = self._last_turn, turn
            with before:
                pass
            acquire()
        finally:
            try:
                turn.release()
            finally:
                self._waiting.discard(turn)

    def wait(self, seconds: float | None = None) -> None:
        """Release the lock until `notify_all` is called, at most for `seconds`; then take it again.

        It may return earlier. The calling thread holds the lock, however often it has taken it.
        """
        longest = _LOOK_AGAIN if seconds is None else min(max(0.0, seconds), _LOOK_AGAIN)
        sleeper = threading.Lock()
        sleeper.acquire()
        held: list[Any] = []
        try:
            self._sleeping.add(sleeper)
            # In one call, so that it cannot be released without being noted.
            held.extend(starmap(self._lock._release_save, [()]))
            sleeper.acquire(timeout=longest)
        finally:
            try:
                self._take_again(held)
            finally:
                try:  # an interrupt may have come before the first one began
                    self._take_again(held)
                finally:
                    self._sleeping.discard(sleeper)

    def notify_all(self) -> None:
        """Wake all threads in `wait`. The calling thread holds the lock."""
        sleeping, self._sleeping = self._sleeping, set()
        for sleeper in sleeping:
            sleeper.release()

    def _take_again(self, held: list[Any]) -> None:
        """Take the lock as often as before, also if interrupted: a `with` will release it.

        held: what was released; empty for nothing.
        """
        interrupt: BaseException | None = None
        while held and not self._lock._is_owned() and not self.is_forked:
            try:
                self._take(lambda: self._lock._acquire_restore(held[0]))
            except BaseException as raised:
                interrupt = raised
        if interrupt:
            raise interrupt
