"""Lost terminal: the chat ends when its terminal is closed, and keeps the conversation.

A terminal that is not closed may read nothing for a while, as one behind a connection that is lost.
"""

import asyncio
import errno
import os
import signal
import sys
from contextlib import suppress
from queue import Full
from typing import IO, ClassVar

from textual.app import App
from textual.drivers._writer_thread import WriterThread

# Seconds after which the chat has seen by itself that its terminal is closed.
_INTERVAL = 1.0
# Seconds that the chat waits for a terminal that reads nothing: with a text, and at its end.
_PATIENCE, _AT_END = 1.0, 5.0


class _Output(WriterThread):
    """Writes to the terminal. What is written once there is none any more is dropped.

    Textual's own thread would die, and the app would wait for it for ever. So it would for a
    terminal that reads nothing: what that does not take in time is dropped, too.

    latest: the one that was made last. is_behind: whether something was dropped since the screen
    was drawn as a whole.
    """

    latest: ClassVar["_Output | None"] = None

    def __init__(self, file: IO[str]) -> None:
        super().__init__(file)
        self.is_behind = False
        _Output.latest = self

    def write(self, text: str) -> None:
        try:
            self._queue.put(text, timeout=0 if self.is_behind else _PATIENCE)
        except Full:
            self.is_behind = True

    def stop(self) -> None:
        with suppress(Full):
            self._queue.put(None, timeout=_AT_END)
            self.join(_AT_END)

    def has_caught_up(self) -> bool:
        """Whether something was dropped, and the terminal reads again."""
        if not self.is_behind or not self._queue.empty():
            return False
        self.is_behind = False
        return True

    def run(self) -> None:
        try:
            super().run()
        except OSError:
            while self._queue.get() is not None:
                pass


def outlive_terminal() -> None:
    """Let apps that begin after this write to a terminal that may be closed."""
    if os.name != "nt":
        from textual.drivers import linux_driver

        # A driver makes its own thread.
        setattr(linux_driver, "WriterThread", _Output)  # noqa: B010


def is_stuck() -> bool:
    """Whether the terminal has not read all that was written to it, once the app has ended."""
    return _Output.latest is not None and _Output.latest.is_alive()


def exit_with_terminal(app: App[None]) -> None:
    """Exit the app when its terminal is closed, or when it is told to end.

    The app must be running. Not every terminal sends a signal when it is closed.
    """
    for name in ("SIGTERM", "SIGHUP"):
        # Windows has neither.
        with suppress(NotImplementedError, AttributeError, RuntimeError):
            asyncio.get_running_loop().add_signal_handler(getattr(signal, name), app.exit)

    def look() -> None:
        if _is_lost():
            app.exit()
        elif _Output.latest and _Output.latest.has_caught_up():
            app.refresh(layout=True)

    app.set_interval(_INTERVAL, look)


def _is_lost() -> bool:
    """Whether the terminal that the input came from is closed."""
    if os.name == "nt" or sys.__stdin__ is None:
        return False
    import termios

    try:
        termios.tcgetattr(sys.__stdin__)
    except termios.error as error:
        return bool(error.args[0] == errno.EIO)
    except ValueError:
        # The input is closed, or something without a file.
        pass
    return False
