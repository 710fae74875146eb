"""Message reader: reads the user's messages from standard input, line by line."""

import io
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import BufferedReader
from types import ModuleType
from typing import NamedTuple, cast

from localspec.cli.output import write_to_stderr
from localspec.utils.text_file import is_utf_16
from localspec_tui.slash_commands import TEXT_COMMANDS, as_message, as_typed, is_command

PROMPT, FURTHER = "> ", ". "
# What ends the input of a terminal.
END_KEYS = "Ctrl-Z Enter" if sys.platform == "win32" else "Ctrl-D"
_QUOTES = '"""'
# Bytes that a terminal takes in one line, where readline does not edit it (N_TTY_BUF_SIZE).
_LONGEST_TYPED = 4095


class Typed(NamedTuple):
    """A message, as the chat's text box would have it, or a command."""

    text: str
    is_command: bool = False


class MessageReader:
    """Reads messages. A line is one, unless it ends in a backslash or opens a block with `\"""`.

    On a terminal the lines can be edited, and Up brings back earlier ones, if Python has readline.

    is_terminal: whether the messages are typed.
    """

    def __init__(self) -> None:
        self.is_terminal = sys.stdin.isatty()
        # `input` edits lines only so, and would write the prompt among the answers else.
        self._edits = self.is_terminal and sys.stdout.isatty()
        self._readline = _readline() if self._edits else None
        self._has_lines = self._knows_encoding = False
        self._newest = ""

    def remember(self, messages: Callable[[], Iterable[str]]) -> None:
        """Let Up bring back these messages, the last one first."""
        if self._readline:
            for message in messages():
                self._add_history(_as_line(message))

    @property
    def is_begun(self) -> bool:
        """Whether a part of a message was typed when the last `read` was interrupted."""
        return self._has_lines or bool(self._readline and self._readline.get_line_buffer())

    def read(self) -> Typed | None:
        """The next message or command; None at the end. Raises KeyboardInterrupt."""
        self._has_lines = False
        line = self._line(PROMPT)
        if line is None:
            return None
        name, _, rest = line.strip(" \t").partition(" ")
        if name in TEXT_COMMANDS and ("\n" not in rest or rest.lstrip().startswith(_QUOTES)):
            text = self._text(rest.lstrip())
            written = _as_line(text, is_quoted="\n" in text)
            self._add_history(f"{name} {written}")
            return Typed(f"{name} {text}", is_command=True)
        if is_command(line):
            self._add_history(line)
            return Typed(line, is_command=True)
        text = self._text(line)
        self._add_history(_as_line(text))
        return Typed(text)

    def _add_history(self, line: str) -> None:
        """Let Up bring back what was typed, unless the terminal's locale cannot write it."""
        if self._readline and line.strip() and line != self._newest:
            self._newest = line
            with suppress(UnicodeEncodeError):
                self._readline.add_history(line)

    def _text(self, line: str) -> str:
        """The text that begins with this line, as the chat's text box would have it."""
        begun = line.lstrip()
        if begun.startswith(_QUOTES):
            return as_typed(self._block(begun.removeprefix(_QUOTES)))
        lines = [line]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            if (following := self._line(FURTHER)) is None:
                break
            lines.append(following)
        return "\n".join(lines)

    def _block(self, line: str) -> str:
        """The text up to the next quotes at the end of a line. line: what follows the first."""
        lines = [line]
        while not lines[-1].rstrip().endswith(_QUOTES):
            if (following := self._line(FURTHER)) is None:
                break
            lines.append(following)
        else:
            lines[-1] = lines[-1].rstrip().removesuffix(_QUOTES)
        return "\n".join(lines).strip("\n")

    def _note_cut(self, line: str) -> None:
        """Say that the terminal, which edits this line, takes no longer one."""
        size = len(line.removesuffix("\n").encode(sys.stdin.encoding, "replace"))
        if size == _LONGEST_TYPED:
            write_to_stderr(
                f"(a terminal takes {size:,} bytes in one line: what was typed behind them is "
                'lost; end a line earlier with \\, begin the text with """, or attach a file '
                "with @path)\n"
            )

    def _line(self, prompt: str) -> str | None:
        """The next line; None at the end."""
        if self._edits:
            self._find_encoding()
            try:
                line = input(prompt)
            except EOFError:
                # What follows begins on a line of its own.
                write_to_stderr("\n")
                return None
        else:
            write_to_stderr(prompt)
            self._find_encoding()
            line = sys.stdin.readline()
            if not line:
                write_to_stderr("\n")
                return None
        self._has_lines = True
        if self.is_terminal and not self._readline:
            self._note_cut(line)
        # What is typed may be no text in the terminal's encoding.
        return line.removesuffix("\n").encode("utf-8", "replace").decode()

    def _find_encoding(self) -> None:
        """Choose the encoding of standard input by its first bytes, for which this waits."""
        if self._knows_encoding or not isinstance(sys.stdin, io.TextIOWrapper):
            return
        # A terminal has an encoding of its own.
        encoding = sys.stdin.encoding
        if not self.is_terminal:
            start = cast(BufferedReader, sys.stdin.buffer).peek(2)
            encoding = "utf-16" if is_utf_16(start) else "utf-8-sig"
        sys.stdin.reconfigure(encoding=encoding, errors="replace")
        self._knows_encoding = True


def _as_line(text: str, *, is_quoted: bool = False) -> str:
    """What is typed for a text at once: between quotes where it would be something else."""
    is_quoted |= text.lstrip().startswith(_QUOTES) or text.endswith("\\")
    is_quoted |= text.lstrip().startswith("/") and "\n" in text
    return f"{_QUOTES}{as_message(text)}{_QUOTES}" if is_quoted else text


def _readline() -> ModuleType | None:
    """The module that edits lines; None where there is none, or the terminal has no cursor."""
    if os.environ.get("TERM") == "dumb":
        return None
    with suppress(ImportError):
        import readline

        # The lines of a message come back as one.
        readline.set_auto_history(False)
        if "libedit" not in (readline.__doc__ or ""):
            # A paste of several lines is one message. Python has switched that off.
            readline.parse_and_bind("set enable-bracketed-paste on")
        return readline
    return None
