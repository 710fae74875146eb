"""Output: stdout is data only, everything else goes to stderr; colour only where it is wanted."""

import io
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TextIO

from localspec.errors import LocalspecError

# Style per kind of origin, readable without colour too: drafted tokens are underlined,
# corrections are bold, bonus tokens are italic, plain ones are left alone.
_STYLES = {"drafted": "4;32", "corrected": "1;31", "bonus": "3;36", "plain": ""}


class ReaderGone(Exception):
    """The other end of the pipe was closed: it has all it wanted."""


class Output:
    """Where a command writes. color: colour was asked for; whether it is used is in `.color`.

    Raises LocalspecError when stdout is closed, and from every writer when it cannot be written.
    """

    def __init__(self, *, color: bool = False) -> None:
        if sys.stdout is None:
            raise LocalspecError("standard output is closed; open it, or send it to a file")
        if isinstance(sys.stdout, io.TextIOWrapper):
            # A terminal that knows no Unicode shows `?`; the text does not end there.
            sys.stdout.reconfigure(errors="replace")
        self.color_off_because = colors_off_because(sys.stdout)
        self.color = color and not self.color_off_because

    def data(self, text: str) -> None:
        """To stdout, at once. Raises ReaderGone when nobody reads it any more."""
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise ReaderGone from error
        except OSError as error:
            abandon_stdout()
            raise LocalspecError(
                f"standard output cannot be written: {error.strerror}; send it elsewhere"
            ) from error

    def record(self, record: Mapping[str, Any]) -> None:
        """A JSON object to stdout, on one line."""
        line = json.dumps(record, ensure_ascii=False)
        try:
            line.encode(sys.stdout.encoding)
        except UnicodeEncodeError:
            # Not UTF-8, or a file name that is not: escapes are valid JSON everywhere.
            line = json.dumps(record)
        self.data(line + "\n")

    def token(self, text: str, origin: str) -> None:
        """A token's text to stdout, styled by its origin when colour is on."""
        style = _STYLES[kind_of(origin)] if self.color else ""
        # Escape codes do not reach over line breaks in every pager and terminal.
        lines = text.split("\n")
        self.data(
            "\n".join(f"\x1b[{style}m{line}\x1b[0m" if style and line else line for line in lines)
        )

    def note(self, text: str) -> None:
        """One line to stderr."""
        say(text)

    def legend(self, drafters: Sequence[str]) -> None:
        """What the styles mean, to stderr."""
        self.note(
            f"{' or '.join(drafters) or 'drafted'}: green, underlined · corrected: red, bold · "
            "bonus: cyan, italic · plain: as it is"
        )


def kind_of(origin: str) -> str:
    """`drafted` for any drafter's name, else the origin itself."""
    return origin if origin in _STYLES else "drafted"


def say(text: str) -> None:
    """One line to stderr, if anyone reads it: that nobody does must not end the data."""
    if sys.stderr is not None:
        with suppress(BrokenPipeError):
            sys.stderr.write(f"localspec: {text}\n")


class Notices(logging.Handler):
    """Says what the library tells of itself while a command waits for it."""

    def emit(self, record: logging.LogRecord) -> None:
        """One notice."""
        say(record.getMessage())


def say_notices() -> None:
    """From here on; asking twice changes nothing."""
    logger = logging.getLogger("localspec")
    if not any(isinstance(handler, Notices) for handler in logger.handlers):
        logger.addHandler(Notices())
        logger.setLevel(logging.INFO)


def colors_off_because(stream: TextIO) -> str | None:
    """Why text to this stream is not coloured, or None when it may be."""
    if os.environ.get("NO_COLOR"):
        return "NO_COLOR is set"
    if os.environ.get("FORCE_COLOR"):
        return None
    if not stream.isatty():
        return "stdout is no terminal (FORCE_COLOR=1 colours all the same)"
    return "TERM is dumb" if os.environ.get("TERM") == "dumb" else None


def abandon_stdout() -> None:
    """The reader of stdout is gone: keep the interpreter from complaining when it flushes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def joined(parts: Sequence[str]) -> str:
    """Facts of one line, set apart."""
    return " · ".join(part for part in parts if part)
