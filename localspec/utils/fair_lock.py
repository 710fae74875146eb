"""FairLock: one thread at a time, in the order of asking."""

import threading
from collections import deque


class FairLock:
    """A lock for a `with`, served first come, first served; who is inside may go in again.

    A plain lock lets the thread that has just left take it again before those that wait. That one
    may go in again serves the garbage collector, too, which may close what is left anywhere.
    """

    def __init__(self) -> None:
        self._guard = threading.RLock()
        self._inside: int | None = None
        self._times = 0
        self._waiting: deque[tuple[int, threading.Lock]] = deque()

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self._guard:
            if self._inside in (None, me):
                self._inside = me
                self._times += 1
                return
            ticket = threading.Lock()
            ticket.acquire()
            self._waiting.append((me, ticket))
        try:
            ticket.acquire()
        except BaseException:
            self._give_up(me, ticket)
            raise

    def __exit__(self, *_exc: object) -> None:
        with self._guard:
            self._times -= 1
            if self._times > 0:
                return
            self._inside, self._times = None, 0
            if self._waiting:
                # The turn is handed over, so that nobody comes in between.
                self._inside, ticket = self._waiting.popleft()
                self._times = 1
                ticket.release()

    def _give_up(self, me: int, ticket: threading.Lock) -> None:
        """An interrupt came while waiting; the turn may have come with it."""
        with self._guard:
            if (me, ticket) in self._waiting:
                self._waiting.remove((me, ticket))
                return
        self.__exit__()
