"""Sanitized: text from outside, made safe for a terminal."""

from localspec.utils.format import printable

# Control characters and Unicode line ends can move the cursor or change the screen.
_CONTROLS = {*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029} - {ord("\n"), ord("\t")}
_REPLACEMENTS: dict[int, str | None] = {**dict.fromkeys(_CONTROLS, "\ufffd"), ord("\r"): None}
# Characters that join several others to one sign, such as an emoji.
_JOINERS = "\u200c\u200d"


def sanitized(text: str) -> str:
    """Replace control characters. The pieces of a text may be passed one by one."""
    return text.translate(_REPLACEMENTS)


def single_line(text: str) -> str:
    """Join the words of a text with single spaces, and remove what is not printable."""
    return printable(" ".join(text.split()), also=_JOINERS, instead="")
