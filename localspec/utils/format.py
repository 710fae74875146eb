"""Formatting of byte counts, times and foreign text for one line of output."""

import json
import re
import time

_AGES = (
    (365 * 86400, "year"),
    (30 * 86400, "month"),
    (7 * 86400, "week"),
    (86400, "day"),
    (3600, "hour"),
    (60, "minute"),
)

# Characters of a text from outside that is shown as one line, and of an excerpt.
_LONGEST, _EXCERPT = 1000, 48
_SOURCE_FOLDER = re.compile(r"^\S*[/\\](?=[^/\\]+:\d+: )")
_CONTROLS = {*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029} - {ord("\n"), ord("\t")}
_CONTROL_REPLACEMENTS: dict[int, str | None] = {
    **dict.fromkeys(_CONTROLS, "\ufffd"),
    ord("\r"): None,
}


def format_bytes(size: float) -> str:
    """Return a number of bytes as "4.70 GB", "81.5 MB" or "812 bytes" (1 GB is 1e9 bytes)."""
    if size >= 1e12:
        return f"{size / 1e12:.2f} TB"
    if size >= 1e9:
        return f"{size / 1e9:.2f} GB"
    if size >= 1e6:
        return f"{size / 1e6:.1f} MB"
    return f"{size / 1e3:.1f} kB" if size >= 1e3 else f"{size:.0f} bytes"


def format_count(number: int) -> str:
    """Return a number of parameters as "7.6B", "135M" or "12"."""
    for unit, name in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if number >= unit:
            return f"{number / unit:.{1 if number < 100 * unit else 0}f}{name}"
    return str(number)


def format_seconds(seconds: float) -> str:
    """Return a rough time: 40 s, 5 min, 3.2 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def counted(number: int, noun: str) -> str:
    """Return "1 user", "2 users" and the like."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def as_json(value: object) -> str:
    """Return a value as JSON has it (true, not Python's True); a text is in Python's quotes."""
    if isinstance(value, str):
        return repr(value)
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):  # no JSON
        return repr(value)


def without_folder(line: str) -> str:
    """Return a failed assertion in C, "file:line: what", without the folder of its sources."""
    return _SOURCE_FOLDER.sub("", line)


def ago(moment: float) -> str:
    """Return "3 weeks ago" and the like for a time in seconds since 1970."""
    passed = max(0.0, time.time() - moment)
    for unit, name in _AGES:
        if number := int(passed // unit):
            return f"{counted(number, name)} ago"
    return "just now"


def printable(text: str, *, also: str = "", instead: str = "?") -> str:
    """Return a text in which every unprintable character, as a terminal's escape, is replaced.

    also: unprintable characters that stay. instead: what replaces the others.
    """
    return "".join(letter if letter.isprintable() or letter in also else instead for letter in text)


def without_controls(text: str) -> str:
    """Return a text whose control characters, which a terminal obeys, are replaced by U+FFFD.

    Line feeds and tabs stay, carriage returns go. The pieces of a text may be passed one by one.
    """
    return text.translate(_CONTROL_REPLACEMENTS)


def one_line(text: str) -> str:
    """Return a text from outside as one line without control characters; cut in its middle."""
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST * 2 // 3]} ... {text[-_LONGEST // 3 :]}"
    return without_controls(" ".join(text.splitlines()))


def excerpt(text: str) -> str:
    """The beginning of a text in quotes, with its line breaks and quotes escaped."""
    return repr(text if len(text) <= _EXCERPT else text[: _EXCERPT - 3] + "...")
