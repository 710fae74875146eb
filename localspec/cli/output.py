"""Output: stdout is data only, everything else goes to stderr; colour only where it is wanted."""

import os
import sys
from collections.abc import Sequence
from typing import TextIO

# Style per kind of origin, readable without colour too: drafted tokens are underlined,
# corrections are bold, bonus tokens are italic, plain ones are left alone.
_STYLES = {"drafted": "4;32", "corrected": "1;31", "bonus": "3;36", "plain": ""}


class ReaderGone(Exception):
    """The other end of the pipe was closed: it has all it wanted."""


class Output:
    """Where a command writes. color: colour was asked for; whether it is used is in `.color`."""

    def __init__(self, *, color: bool = False) -> None:
        self.color = color and colors_allowed(sys.stdout)

    def data(self, text: str) -> None:
        """To stdout, at once. Raises ReaderGone when nobody reads it any more."""
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise ReaderGone from error

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
        sys.stderr.write(f"localspec: {text}\n")

    def legend(self, drafter: str | None) -> None:
        """What the styles mean, to stderr."""
        self.note(
            f"{drafter or 'drafted'}: green, underlined · corrected: red, bold · "
            "bonus: cyan, italic · plain: as it is"
        )


def kind_of(origin: str) -> str:
    """`drafted` for any drafter's name, else the origin itself."""
    return origin if origin in _STYLES else "drafted"


def colors_allowed(stream: TextIO) -> bool:
    """NO_COLOR, FORCE_COLOR and TERM=dumb decide; otherwise, whether this is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def abandon_stdout() -> None:
    """The reader of stdout is gone: keep the interpreter from complaining when it flushes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def joined(parts: Sequence[str]) -> str:
    """Facts of one line, set apart."""
    return " · ".join(part for part in parts if part)
