"""Orders: what one thread asks another to do, one after the other."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple


class _Order(NamedTuple):
    """number: from 1, in the order of asking."""

    number: int
    name: str
    do: Callable[[], None]


class Orders:
    """A thread that does what it is told.

    failed: is told, in that thread, what an order raised, and the order's name. last: what the
    thread does before it ends. All methods are for one other thread to call, but
    `stopped` and `given_up`.
    """

    def __init__(self, failed: Callable[[Exception, str], None], last: Callable[[], None]) -> None:
        self._failed, self._last = failed, last
        self._waiting: SimpleQueue[_Order | None] = SimpleQueue()
        self._given = self._current = self._done = self._stopped = self._given_up = 0
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether something that was ordered is not done."""
        return self._done < self._given

    @property
    def stopped(self) -> bool:
        """Whether the order that is being carried out is to end."""
        return self._current <= self._stopped

    @property
    def given_up(self) -> bool:
        """Whether it is to end even if what was ordered after it needs it."""
        return self._current <= self._given_up

    def give(self, name: str, do: Callable[[], None]) -> None:
        """Have this done after all that was ordered before."""
        self._given += 1
        self._waiting.put(_Order(self._given, name, do))

    def stop(self) -> None:
        """What was ordered until now is to end."""
        self._stopped = self._given

    def give_up(self) -> None:
        """What was ordered until now is to end, and what it was to lead to is not wanted."""
        self._stopped = self._given_up = self._given

    def close(self, patience: float) -> None:
        """Leave out what has not begun, and wait so many seconds for the thread to end."""
        self._closing = True
        self._waiting.put(None)
        self._thread.join(patience)

    def _work(self) -> None:
        while (order := self._waiting.get()) and not self._closing:
            self._current = order.number
            try:
                order.do()
            except Exception as error:
                self._failed(error, order.name)
            self._done = order.number
        self._last()
