"""Loop mail: what threads hand to an event loop, some of it together."""

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any
from weakref import WeakValueDictionary

# What is sent within so many seconds is delivered together.
_TOGETHER = 0.003
# What was to deliver it may have been cut off by an interrupt: after so many seconds the loop is
# woken once more.
_AGAIN = 0.03


class LoopMail:
    """Hands what threads send to functions that an event loop calls, in the order of sending.

    Several texts have a token each within a few milliseconds, between two passes. A loop that woke
    for every one of them would take Python's lock from the threads that have yet to write theirs,
    and for which the next pass waits; while a pass is computed, it has the lock for itself.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sent: deque[tuple[Callable[[Any], object], Any]] = deque()
        self._awaited_until = 0.0

    def send(self, take: Callable[[Any], object], item: Any, *, at_once: bool = False) -> None:
        """Have the loop call `take(item)`. at_once: not a little later, together with others.

        Any thread may call this. Raises RuntimeError if the loop was closed.
        """
        self._sent.append((take, item))
        now = monotonic()
        if now < self._awaited_until and not at_once:
            return
        self._awaited_until = now + _AGAIN
        try:
            self._loop.call_soon_threadsafe(self._deliver if at_once else self._await_others)
        except RuntimeError:
            self._awaited_until = 0.0
            raise

    def _await_others(self) -> None:
        asyncio.get_running_loop().call_later(_TOGETHER, self._deliver)

    def _deliver(self) -> None:
        # First, so that what is sent meanwhile wakes the loop again.
        self._awaited_until = 0.0
        try:
            while self._sent:
                take, item = self._sent.popleft()
                take(item)
        finally:
            if self._sent:  # interrupted
                asyncio.get_running_loop().call_soon(self._deliver)


# Those that somebody sends with: a mail may hold what a loop that was closed has not taken.
_mails: WeakValueDictionary[asyncio.AbstractEventLoop, LoopMail] = WeakValueDictionary()


def mail_of(loop: asyncio.AbstractEventLoop) -> LoopMail:
    """The mail of an event loop. Call it in that loop."""
    if (mail := _mails.get(loop)) is None:
        mail = _mails[loop] = LoopMail(loop)
    return mail
