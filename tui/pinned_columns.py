"""Pinned columns: what terminals draw in different widths does not move what is behind it.

Of emoji that are several characters, and of letters with vowels around them, each terminal has its
own width. What Textual draws next would be columns off, and leave rests of what was there before.
"""

import re

from rich.cells import cell_len
from textual.driver import Driver

_EMOJI = "\U0001f000-\U0001faff"
# Signs that make an emoji of what is before them, or one of several; tags of flags.
_JOINING = "\u200d\u20e3\ufe0e\ufe0f\U000e0020-\U000e007f"
# Scripts of India and of Southeast Asia.
_LETTERS = "\u0900-\u0dff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_UNSURE = re.compile(f"[{_EMOJI}{_JOINING}{_LETTERS}]")
_RUN = re.compile(
    rf"(?:[{_EMOJI}{_JOINING}{_LETTERS}]|[^\x00-\x7f](?=[{_JOINING}])|[\d#*](?=\ufe0f?\u20e3))+"
)


def pinned(data: str) -> str:
    """What is drawn, with the cursor put behind each such text by itself."""
    # Nearly all data has none.
    return _RUN.sub(_pin, data) if _UNSURE.search(data) else data


def _pin(run: re.Match[str]) -> str:
    width = cell_len(run[0])
    # Save the cursor, blank the cells, and go back to it; after the text, go back and past them.
    return f"\x1b7{' ' * width}\x1b8{run[0]}\x1b8\x1b[{width}C" if width else run[0]


def with_pinned_columns(driver: type[Driver]) -> type[Driver]:
    """A driver whose terminal is given pinned columns."""

    def write(self: Driver, data: str) -> None:
        driver.write(self, pinned(data))

    return type(driver.__name__, (driver,), {"write": write})
