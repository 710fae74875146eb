"""Ctrl-C: what it does while models load, and while text is made."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# The exit code, as shells give it for Ctrl-C.
INTERRUPTED = 130

Handler = Callable[[int, object], None]


@contextmanager
def on_interrupt(handler: Handler) -> Iterator[None]:
    """While inside, Ctrl-C calls this."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def leave(_signal: int, _frame: object) -> None:
    """End the program at once."""
    # While models load, Python runs only inside the library's callbacks, where an exception is
    # printed and forgotten; and there is nothing yet to keep.
    os._exit(INTERRUPTED)


def cancelling(cancel: threading.Event) -> Handler:
    """The first Ctrl-C ends the text within a step; the second ends the program."""

    def handle(_signal: int, _frame: object) -> None:
        if cancel.is_set():
            raise KeyboardInterrupt
        cancel.set()

    return handle
