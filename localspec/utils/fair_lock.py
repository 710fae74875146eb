"""FairLock: a lock whose waiting threads get it in the order in which they asked."""

import threading
from collections import deque


class FairLock:
    """A reentrant lock for `with` statements, first come, first served.

    A plain lock may be taken again by the thread that has just released it, ahead of threads that
    have waited longer. It is reentrant because the garbage collector may close a model in the
    middle of anything, also in the thread that holds the lock.
    """

    def __init__(self) -> None:
        self._guard = threading.RLock()
        self._owner: int | None = None
        self._count = 0
        self._waiting: deque[tuple[int, threading.Lock]] = deque()

    def __enter__(self) -> None:
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

    def _stop_waiting(self, thread: int, ready: threading.Lock) -> None:
        """Leave the queue after an interrupt; release the lock if the thread had just got it."""
        with self._guard:
            if (thread, ready) in self._waiting:
                self._waiting.remove((thread, ready))
                return
        self.__exit__()
