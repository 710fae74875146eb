"""Command queue: a thread that runs the commands of another thread, one after the other."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple


class _Command(NamedTuple):
    """number: counts all commands from 1."""

    number: int
    name: str
    run: Callable[[], None]


class CommandQueue:
    """A thread that runs commands in the order in which they were put.

    on_error: called in that thread with the exception of a command and the command's name.
    on_close: called in that thread before it ends. `superseded` and `cancelled` are for the running
    command to read; everything else is for one other thread.
    """

    def __init__(
        self, on_error: Callable[[Exception, str], None], on_close: Callable[[], None]
    ) -> None:
        self._on_error, self._on_close = on_error, on_close
        self._waiting: SimpleQueue[_Command | None] = SimpleQueue()
        # Numbers of commands; all up to `_superseded` or `_cancelled` are to end early.
        self._put = self._running = self._done = self._superseded = self._cancelled = 0
        self._closing = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether a command is waiting or running."""
        return self._done < self._put

    @property
    def superseded(self) -> bool:
        """Whether the running command should end early, unless a later one needs its result."""
        return self._running <= self._superseded

    @property
    def cancelled(self) -> bool:
        """Whether the running command should end early in any case."""
        return self._running <= self._cancelled

    def put(self, name: str, run: Callable[[], None]) -> int:
        """Add a command and return its number. name: for error reports."""
        self._put += 1
        self._waiting.put(_Command(self._put, name, run))
        return self._put

    def has_run(self, number: int) -> bool:
        """Whether the command with this number has run."""
        return number <= self._done

    def supersede(self) -> None:
        """Ask all commands put so far to end early, but not the loading of a model."""
        self._superseded = self._put

    def cancel(self) -> None:
        """Ask all commands put so far to end early, the loading of a model included."""
        self._superseded = self._cancelled = self._put

    def end(self, timeout: float) -> None:
        """Skip the commands that wait, and give the one that runs up to `timeout` seconds."""
        self._closing = True
        self._waiting.put(None)
        self._ended.wait(timeout)

    def close(self, timeout: float) -> bool:
        """Skip the commands that wait, and give the thread up to `timeout` seconds to end.

        Returns whether it has.
        """
        self._closing = True
        self._waiting.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (command := self._waiting.get()) and not self._closing:
            self._running = command.number
            try:
                command.run()
            except Exception as error:
                self._on_error(error, command.name)
            self._done = command.number
        self._ended.set()
        self._on_close()
