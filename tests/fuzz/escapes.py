"""Texts with everything that a terminal obeys: none of it is left in what is shown."""

import re
from random import Random

from localspec.utils.format import excerpt, one_line, without_controls

TITLE = "\x1b]0;gotcha\x07"
# Titles, clipboards, links, device reports, cursors, screens, 8-bit forms, and lone bytes of them.
SEQUENCES = [
    TITLE, "\x1b]52;c;aGk=\x07", "\x1b]8;;http://x\x1b\\", "\x1b[6n", "\x1b[2J", "\x1b[1;1H",
    "\x1bc", "\x9b2J", "\x9d0;x\x9c", "\x1bP+q\x1b\\", "\x08\x08", "\x7f", "\r", "\x1b", "\x07",
    "\u2028", "\x85", "\x1b[?1049h", "\x1b[8m", "\x00",
]  # fmt: skip
# What a terminal obeys, except line feeds, tabs and the codes of styles.
OBEYED = re.compile(r"\x1b(?!\[[\d;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u2028\u2029]")


def hostile_text(random: Random) -> str:
    parts = [*SEQUENCES, "word", "\n", "日本\u3000語", "é", "😀", "\t"]
    return "".join(random.choice(parts) for _ in range(random.randint(1, 12)))


def escape_case(number: int) -> str:
    """A hostile text, as it is shown in full, in a line and in an excerpt."""
    text = hostile_text(Random(number))
    assert not OBEYED.search(without_controls(text)), repr(text)
    for line in (one_line(text), excerpt(text)):
        assert not OBEYED.search(line) and "\n" not in line, repr(text)
    return "harmless" if without_controls(text) == text else "cleaned"
