"""StatusLine: what a command is doing, on a line of the terminal that is erased afterwards."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from types import TracebackType

from localspec.utils.format import one_line
from localspec.utils.progress import watched

# Seconds between two changes of the line.
_EVERY, _USUAL_COLUMNS = 0.1, 80
# Stands between the facts of a line.
_DOT = "·"
# Signal handlers erase lines, too.
_lock = threading.RLock()
_shown: dict[int, int] = {}


class StatusLine:
    """A line on stderr for the time of a `with`; nothing where stderr is no terminal.

    after: it appears where the `with` takes more seconds than that. Whatever else is written by
    `Output` or as a note erases it first; it comes back with the next `show`.
    """

    def __init__(self, after: float = 1.0) -> None:
        self._due = monotonic() + after
        self._text = ""
        self._ended = not _is_possible()
        self._timer = threading.Timer(after, self._draw)
        self._timer.daemon = True

    def __enter__(self) -> "StatusLine":
        if not self._ended:
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def show(self, text: str) -> None:
        """Show another text."""
        self._text = text
        if not self._ended and monotonic() >= self._due:
            self._draw()

    def end(self) -> None:
        """Erase the line, and show nothing more."""
        self._timer.cancel()
        with _lock:
            self._ended = True
            erase_status_line()

    def _draw(self) -> None:
        with _lock:
            if self._ended or not self._text:
                return
            self._due = monotonic() + _EVERY
            stream = sys.stderr.fileno()
            with suppress(OSError):
                # Some terminals do not know their size.
                columns = os.get_terminal_size(stream).columns or _USUAL_COLUMNS
                line = one_line(self._text)[: columns - 1]
                erase_status_line()
                _shown[stream] = len(line)
                _write(stream, line)


@contextmanager
def loading_shown() -> Iterator[None]:
    """Show on a status line how far the loading inside the block is."""
    with StatusLine() as status:

        def show(action: str, share: float | None) -> None:
            status.show(action if share is None else f"{action}, {100 * share:.0f} %")

        show("loading", None)
        with watched(show):
            yield


@contextmanager
def without_status_line() -> Iterator[None]:
    """Erase the line that is shown, and show none inside the block."""
    with _lock:
        erase_status_line()
        yield


def erase_status_line() -> None:
    """Erase the line that is shown, if any."""
    with _lock, suppress(OSError):
        while _shown:
            stream, width = _shown.popitem()
            _write(stream, f"\r{' ' * width}\r")


def _is_possible() -> bool:
    """Whether stderr is a terminal that can rewrite a line."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def for_stderr(text: str) -> str:
    """The text with stars in place of the dots between facts, where stderr has no dots."""
    try:
        _DOT.encode(_encoding())
    except UnicodeEncodeError:
        return text.replace(_DOT, "*")
    return text


def _encoding() -> str:
    return getattr(sys.stderr, "encoding", None) or "ascii"


def _write(stream: int, text: str) -> None:
    # Unbuffered: a signal handler may run within a write of sys.stderr.
    os.write(stream, for_stderr(text).encode(_encoding(), "replace"))
