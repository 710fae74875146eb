"""Terminal background: asks the terminal whether it is light, before Textual has it.

The answer to OSC 11 is followed by that to a question which every terminal knows (DA1), so that one
without the former costs no wait.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from select import select
from time import monotonic
from typing import NamedTuple

_QUESTIONS = b"\x1b]11;?\x1b\\\x1b[c"
BACKGROUND = re.compile(r"\x1b\]11;([^\x07\x1b]*)(?:\x07|\x1b\\)")
ATTRIBUTES = re.compile(r"\x1b\[\?[\d;]*c")
_COLOUR = re.compile(r"rgba?:([\da-f]{1,4})/([\da-f]{1,4})/([\da-f]{1,4})", re.IGNORECASE)
# How bright red, green and blue are, and from which sum on a colour is light.
_WEIGHTS, _LIGHT = (0.299, 0.587, 0.114), 0.5
# Backgrounds of COLORFGBG that are light: white, and the bright colours but black.
_LIGHT_NUMBERS = {"7", *map(str, range(9, 16))}
# Seconds to wait for the answers.
TIMEOUT = 0.1


class Answered(NamedTuple):
    """What a terminal has answered, and what else came from it.

    is_light: None if that is not known. typed: what the user has typed meanwhile. is_complete:
    whether no answer is still to come.
    """

    is_light: bool | None
    typed: str = ""
    is_complete: bool = True


def background(environ: Mapping[str, str] = os.environ) -> Answered:
    """Ask the terminal of standard input and output, or take what COLORFGBG says."""
    answered = Answered(None)
    if _is_asked(environ):
        answered = ask(sys.stdin.fileno(), sys.stdout.fileno())
    if answered.is_light is None:
        answered = answered._replace(is_light=_said_by(environ.get("COLORFGBG", "")))
    return answered


def typed_before(environ: Mapping[str, str] = os.environ) -> Answered:
    """What was typed before the chat reads, where the terminal is not asked."""
    if not _is_asked(environ):
        return Answered(None)
    keys = sys.stdin.fileno()
    with _unechoed(keys):
        return Answered(None, _as_keys(_pending(keys)))


def ask(keys: int, screen: int, timeout: float = TIMEOUT) -> Answered:
    """Ask a terminal by its descriptors. keys: to read from. screen: to write to."""
    with _unechoed(keys):
        read, end = _pending(keys), monotonic() + timeout
        os.write(screen, _QUESTIONS)
        while not _is_answered(read):
            if not select([keys], [], [], max(0.0, end - monotonic()))[0]:
                break
            if not (more := os.read(keys, 1024)):
                break
            read += more
    text = _as_keys(read)
    found = BACKGROUND.search(text)
    typed = ATTRIBUTES.sub("", BACKGROUND.sub("", text))
    return Answered(is_light(found[1]) if found else None, typed, _is_answered(read))


def _pending(keys: int) -> bytes:
    """What a terminal has sent already; half a line, too, while it does not echo."""
    read = b""
    while select([keys], [], [], 0)[0] and (more := os.read(keys, 1024)):
        read += more
    return read


def _as_keys(read: bytes) -> str:
    """What Textual would have read: outside of it, Enter is a line feed."""
    return read.decode("utf-8", "replace").replace("\n", "\r")


def is_light(colour: str) -> bool | None:
    """Whether a colour, as terminals write it, is light; None for what is no colour."""
    found = _COLOUR.match(colour)
    if found is None:
        return None
    parts = (int(each, 16) / (16 ** len(each) - 1) for each in found.groups())
    brightness: float = sum(weight * part for weight, part in zip(_WEIGHTS, parts, strict=True))
    return brightness > _LIGHT


def _is_answered(read: bytes) -> bool:
    return ATTRIBUTES.search(read.decode("latin-1")) is not None


def _said_by(variable: str) -> bool | None:
    """What COLORFGBG says of the background, such as "0;default;15"."""
    number = variable.rpartition(";")[2]
    return number in _LIGHT_NUMBERS if number.isdecimal() else None


def _is_asked(environ: Mapping[str, str]) -> bool:
    """Whether there is a terminal to ask, and one that shows nothing of the question."""
    streams = (sys.stdin, sys.stdout)
    if os.name == "nt" or environ.get("TERM", "") in ("", "dumb", "linux"):
        return False
    return all(stream is not None and stream.isatty() for stream in streams) and _is_ours()


def _is_ours() -> bool:
    """Whether this process may change the terminal: one in the background is stopped for that."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return False


@contextmanager
def _unechoed(keys: int) -> Iterator[None]:
    """Have each byte at once, and none of them on the screen."""
    import termios  # not on Windows

    before = termios.tcgetattr(keys)
    changed = termios.tcgetattr(keys)
    changed[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(keys, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(keys, termios.TCSANOW, before)
