"""Sanitized: text from outside, made safe for a terminal."""

from localspec.utils.format import printable
from localspec.utils.format import without_controls as sanitized

__all__ = ["sanitized", "single_line"]

# Characters that join several others to one sign, such as an emoji.
_JOINERS = "\u200c\u200d"


def single_line(text: str) -> str:
    """Join the words of a text with single spaces, and remove what is not printable."""
    return printable(" ".join(text.split()), also=_JOINERS, instead="")
