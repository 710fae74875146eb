"""What a terminal shows while a command loads, reads, or waits: a line that is erased again."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from select import select
from time import sleep

import pytest
from fakes.command_line import Run
from fakes.generate_runs import PROMPT, posix

from localspec.cli.output import write_note
from localspec.cli.status_line import StatusLine, loading_shown
from localspec.utils.progress import report_progress

pytestmark = [posix, pytest.mark.usefixtures("bare_environment")]
Shown = Callable[[], str]


@contextmanager
def terminal() -> Iterator[Shown]:
    """Standard error on a terminal of 40 columns; what was shown since it was looked at last."""
    import fcntl
    import pty
    import struct
    import termios

    screen, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))

    def read() -> str:
        # The system brings what is written to the other end a moment later, and not all at once.
        found = b""
        while select([screen], [], [], 0.05)[0]:
            found += os.read(screen, 65536)
        return found.decode()

    with open(inside, "w", encoding="utf-8") as stream:
        before, sys.stderr = sys.stderr, stream
        try:
            yield read
        finally:
            sys.stderr = before
    os.close(screen)


def test_a_line_appears_after_a_while_and_is_erased() -> None:
    with terminal() as shown, StatusLine(after=0.5) as status:
        status.show("loading")
        assert shown() == ""
        sleep(1)  # the line comes without another `show`
        assert shown() == "loading"
        status.show("x" * 99)
        assert shown() == f"\r{' ' * 7}\r{'x' * 39}"
        status.end()
        status.show("late")
        assert shown() == f"\r{' ' * 39}\r"


def test_what_is_quick_shows_nothing() -> None:
    with terminal() as shown:
        with StatusLine(after=30) as status:
            status.show("loading")
        assert shown() == ""


def test_a_note_erases_the_line() -> None:
    with terminal() as shown, StatusLine(after=0) as status:
        status.show("loading")
        shown()
        write_note("a remark")
        assert shown().startswith(f"\r{' ' * 7}\rlocalspec: a remark")


def test_no_line_where_it_could_not_be_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with terminal() as shown:
        with StatusLine(after=0) as status:
            status.show("loading")
        assert shown() == ""


def test_loading_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StatusLine.__init__, "__defaults__", (0,))
    monkeypatch.setattr("localspec.cli.status_line._EVERY", 0.0)
    with terminal() as shown:
        with loading_shown():
            report_progress("loading owl.gguf", 0.42)
        text = shown()
    assert text.startswith("loading\r") and "\rloading owl.gguf, 42 %\r" in text


def test_generate_shows_loading_and_reading(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StatusLine.__init__, "__defaults__", (0,))
    with terminal() as shown:
        done = cli("generate", "-m", "pycode", PROMPT, "-n", "2")
        text = shown()
    assert done.code == 0
    assert text.startswith("loading\r")
    assert "reading the prompt, " in text and " tokens\r" in text
    lines = [line.rpartition("\r")[2] for line in text.strip().split("\r\n")]
    assert [line[:17] for line in lines] == ["localspec: pycode", "localspec: cut of"]
