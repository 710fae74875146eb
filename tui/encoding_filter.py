"""Encoding filter: makes the screen readable on terminals without Unicode."""

import re
import unicodedata
from functools import lru_cache

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

# Replacements by the Unicode name of a character; the first pattern that matches counts.
_REPLACEMENTS = (
    (r"BOX DRAWINGS .*HORIZONTAL$", "-"),
    (r"BOX DRAWINGS .*VERTICAL$", "|"),
    (r"BOX DRAWINGS", "+"),
    (r"LOWER ONE EIGHTH BLOCK", "_"),
    (r"UPPER ONE EIGHTH BLOCK", "-"),
    (r"(LEFT|RIGHT) .*BLOCK", "|"),
    (r"BLOCK|SHADE|CIRCLE|SQUARE", "#"),
    (r"DOUBLE .*QUOTATION MARK", '"'),
    (r"SINGLE .*QUOTATION MARK", "'"),
    (r"RIGHT", ">"),
    (r"LEFT", "<"),
    (r"\bUP", "^"),
    (r"\bDOWN", "v"),
    (r"BULLET|DOT", "*"),
    (r"DASH|HYPHEN|MINUS", "-"),
    (r"MULTIPLICATION|BALLOT X", "x"),
    (r"RETURN", "<"),
)


class EncodingFilter(LineFilter):
    """Replaces every character that the encoding lacks with a similar one of the same width."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._replace = lru_cache(4096)(lambda text: _replace(text, encoding))

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Replace the text of the segments."""
        return [Segment(self._replace(text), style, control) for text, style, control in segments]


def _replace(text: str, encoding: str) -> str:
    if _can_encode(encoding, text):
        return text
    return "".join(_similar(character, encoding) for character in text)


def _similar(character: str, encoding: str) -> str:
    if _can_encode(encoding, character):
        return character
    width, name = cell_len(character), unicodedata.name(character, "")
    by_name = (new for pattern, new in _REPLACEMENTS if re.search(pattern, name))
    base = unicodedata.normalize("NFKD", character)[:1]
    new = base if character.isalpha() else next(by_name, base)
    return (new if new.isascii() else "?").ljust(width, "?")[:width]


def _can_encode(encoding: str, text: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True
