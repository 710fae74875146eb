"""Output: stdout carries data only, everything else goes to stderr; colour only where wanted."""

import io
import json
import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TextIO

from localspec.cli.status_line import erase_status_line, for_stderr, without_status_line
from localspec.errors import LocalspecError
from localspec.utils.closed_pipe import is_closed_pipe
from localspec.utils.format import one_line, without_controls

# The style of tokens by kind of origin, in rich's words. It is readable without colour too: drafted
# tokens are underlined, corrected ones are bold, bonus tokens are italic.
ORIGIN_STYLES = {
    "drafted": "underline green",
    "corrected": "bold red",
    "bonus": "italic cyan",
    "plain": "",
    "inserted": "",
}


_STYLE_CODES = re.compile(r"(\x1b\[[\d;]*m)")


class ReaderGone(Exception):
    """The process that reads stdout through a pipe has closed it."""


class OutputError(LocalspecError):
    """Standard output cannot be written, as on a full disk."""


class Output:
    """Where a command writes.

    color: whether colour is asked for; the attribute `color` says whether it is used, and
    `color_off_because` why stdout takes none. Raises LocalspecError when stdout is closed, and from
    every method that writes to stdout when that fails.
    """

    def __init__(self, *, color: bool = False) -> None:
        if sys.stdout is None:
            raise LocalspecError("standard output is closed; open it, or send it to a file")
        if isinstance(sys.stdout, io.TextIOWrapper):
            # A terminal without Unicode shows `?` instead of ending the command.
            sys.stdout.reconfigure(errors="replace")
        self._noted_loss = False
        self.color_off_because = colors_off_because(sys.stdout)
        self.color = color and not self.color_off_because

    @property
    def one_stream(self) -> bool:
        """Whether notes appear among the data: stdout and stderr are terminals, or one file."""
        if sys.stderr is None:
            return False
        try:
            is_one = os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
        except (OSError, ValueError):
            is_one = False
        return is_one or (sys.stdout.isatty() and sys.stderr.isatty())

    def data(self, text: str) -> None:
        """Write to stdout and flush. Raises ReaderGone when the reader of a pipe has left.

        A terminal gets no control characters but the codes of styles that this program writes; to
        anything else, bytes go as they are.
        """
        if sys.stdout.isatty():
            text = _for_terminal(text, styled=self.color_off_because is None)
            if text:
                erase_status_line()
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError as error:
            if is_closed_pipe(error):
                raise ReaderGone from error
            abandon_stdout()
            raise OutputError(
                f"standard output cannot be written: {error.strerror}; send it elsewhere"
            ) from error

        self._note_loss(text)

    def _note_loss(self, text: str) -> None:
        """Say once that stdout has no letters for a text."""
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        if self._noted_loss or encoding.lower() == "utf-8":
            return
        try:
            text.encode(encoding)
        except UnicodeEncodeError:
            self._noted_loss = True
            self.note(
                f"letters that {encoding} does not have are written as ?; "
                "PYTHONIOENCODING=utf-8 keeps them"
            )

    def record(self, record: Mapping[str, Any]) -> None:
        """Write a JSON object to stdout, on one line."""
        line = json.dumps(record, ensure_ascii=False)
        try:
            line.encode(sys.stdout.encoding)
        except UnicodeEncodeError:
            # Not UTF-8, or a file name that is not: escapes are valid JSON everywhere.
            line = json.dumps(record)
        self.data(line + "\n")

    def token(self, text: str, origin: str) -> None:
        """Write a token's text to stdout, styled by its origin when colour is on."""
        if sys.stdout.isatty():
            text = without_controls(text)
        self.data(_styled(text, ORIGIN_STYLES[origin_kind(origin)]) if self.color else text)

    def note(self, text: str) -> None:
        """Write one line to stderr."""
        write_note(text)

    def legend(self, drafters: Sequence[str]) -> None:
        """Explain the styles on stderr."""
        self.note(
            f"{' or '.join(drafters) or 'drafted'}: green, underlined · corrected: red, bold · "
            "bonus: cyan, italic · plain: as it is"
        )


def _styled(text: str, style: str) -> str:
    """Return the text with a style's escape codes, which do not reach over line breaks.

    Not every pager and terminal continues a style on the next line.
    """
    # rich takes longer to import than a command without colours should take.
    from rich.style import Style

    parsed = Style.parse(style)
    return "\n".join(parsed.render(line) for line in text.split("\n"))


def _for_terminal(text: str, *, styled: bool) -> str:
    if not styled:
        return without_controls(text)
    # Every second part is the code of a style.
    parts = _STYLE_CODES.split(text)
    return "".join(
        part if number % 2 else without_controls(part) for number, part in enumerate(parts)
    )


def write_utf8_to_files() -> None:
    """On Windows, write UTF-8 with LF where stdout and stderr are no console.

    Python would write the system's code page there, which lacks most letters, and CR LF. The
    variable PYTHONIOENCODING goes first.
    """
    if sys.platform == "win32" and not os.environ.get("PYTHONIOENCODING"):
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper) and not stream.isatty():
                stream.reconfigure(encoding="utf-8", errors=stream.errors, newline="\n")


def origin_kind(origin: str) -> str:
    """Return `drafted` for the name of any drafter, else the origin itself."""
    return origin if origin in ORIGIN_STYLES else "drafted"


def write_note(text: str) -> None:
    """Write one line to stderr, of at most about a thousand letters and no control characters."""
    write_to_stderr(f"localspec: {one_line(text)}\n")


def write_to_stderr(text: str) -> None:
    """Write lines to stderr. Where that fails, it is sent to nowhere from then on.

    A remark that nobody can read must neither end the data nor change the exit code.
    """
    if sys.stderr is None:
        return
    with without_status_line():
        try:
            sys.stderr.write(for_stderr(text))
            sys.stderr.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                _abandon(sys.stderr)


class NoteHandler(logging.Handler):
    """Writes log records as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record's message."""
        write_note(record.getMessage())


def show_log_as_notes() -> None:
    """Write the package's log records of level INFO and above as notes from now on.

    A second call changes nothing.
    """
    logger = logging.getLogger("localspec")
    if not any(isinstance(handler, NoteHandler) for handler in logger.handlers):
        logger.addHandler(NoteHandler())
        logger.setLevel(logging.INFO)


def colors_off_because(stream: TextIO) -> str | None:
    """Return why text on this stream must not be coloured, or None when it may be."""
    if os.environ.get("NO_COLOR"):
        return "NO_COLOR is set"
    if os.environ.get("FORCE_COLOR"):
        return None
    if not stream.isatty():
        return "stdout is no terminal (FORCE_COLOR=1 colours all the same)"
    return "TERM is dumb" if os.environ.get("TERM") == "dumb" else None


def abandon_stdout() -> None:
    """Send stdout to nowhere, so that the interpreter does not complain when it flushes."""
    _abandon(sys.stdout)


def _abandon(stream: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def join_facts(facts: Sequence[str]) -> str:
    """Return one line of facts, separated by dots; empty ones are left out."""
    return " · ".join(fact for fact in facts if fact)
