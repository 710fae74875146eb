"""Ctrl-C: what it does while models load, and while text is generated."""

import _thread
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from localspec.cli.status_line import erase_status_line
from localspec.utils.exit_codes import INTERRUPTED

Handler = Callable[[int, FrameType | None], None]


@contextmanager
def on_interrupt(handler: Handler) -> Iterator[None]:
    """Call `handler` for Ctrl-C inside the block."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def come_again_where_ignored() -> None:
    """Let a Ctrl-C come again, right after, where Python would print its exception and go on.

    That is what it does in callbacks of weak references, of which each import has one, in
    finalisers, and in callbacks from C.
    """
    report = sys.unraisablehook

    def hook(ignored: "sys.UnraisableHookArgs") -> None:
        if ignored.exc_type is KeyboardInterrupt:
            # Raised in here it would be ignored as well.
            _interrupt_soon()
        else:
            report(ignored)

    sys.unraisablehook = hook


def _interrupt_soon() -> None:
    while True:
        try:
            threading.Timer(0.01, _interrupt_main).start()
            return
        except KeyboardInterrupt:
            # It came while this thread waited for the timer's to start, or it is another one.
            continue


def _interrupt_main() -> None:
    if sys.platform == "win32":
        _thread.interrupt_main()
    else:
        # It also ends a wait.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def exit_at_once(_signal: int, _frame: object) -> None:
    """End the program at the first Ctrl-C; for the time before there is anything to keep."""
    # While models load, an exception would be raised only when the library has returned.
    erase_status_line()
    os._exit(INTERRUPTED)


def cancel_first(
    cancel: threading.Event, is_abortable: Callable[[], bool] = lambda: False
) -> Handler:
    """Return a handler that sets `cancel` at the first Ctrl-C and ends the program at the second.

    The text that is being generated ends within a step of `cancel` being set. is_abortable: whether
    nobody looks at `cancel` just now, so that the first one raises KeyboardInterrupt, too.
    """

    def handle(_signal: int, _frame: object) -> None:
        if cancel.is_set():
            raise KeyboardInterrupt
        cancel.set()
        if is_abortable():
            raise KeyboardInterrupt

    return handle
