"""Lost terminal: the chat ends when its terminal is closed, and keeps the conversation."""

import asyncio
import errno
import os
import signal
import sys
from contextlib import suppress

from textual.app import App
from textual.drivers._writer_thread import WriterThread

# Seconds after which the chat has seen by itself that its terminal is closed.
_INTERVAL = 1.0


class _Output(WriterThread):
    """Writes to the terminal. What is written once there is none any more is dropped.

    Textual's own thread would die, and the app would wait for it for ever.
    """

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
