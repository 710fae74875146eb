"""Formatting of byte counts, times and foreign text for one line of output."""

import time

_AGES = (
    (365 * 86400, "year"),
    (30 * 86400, "month"),
    (7 * 86400, "week"),
    (86400, "day"),
    (3600, "hour"),
    (60, "minute"),
)


def format_bytes(size: float) -> str:
    """Return a number of bytes as "4.70 GB", "81.5 MB" or "812 bytes" (1 GB is 1e9 bytes)."""
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


def ago(moment: float) -> str:
    """Return "3 weeks ago" and the like for a time in seconds since 1970."""
    passed = time.time() - moment
    for unit, name in _AGES:
        if number := int(passed // unit):
            return f"{number} {name}{'s' if number > 1 else ''} ago"
    return "just now"


def printable(text: str, *, also: str = "", instead: str = "?") -> str:
    """Return a text in which every unprintable character, as a terminal's escape, is replaced.

    also: unprintable characters that stay. instead: what replaces the others.
    """
    return "".join(letter if letter.isprintable() or letter in also else instead for letter in text)
