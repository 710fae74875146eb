"""Sanitized: text from outside, made safe for a terminal."""

from localspec.utils.format import printable, without_controls

# Characters that join several others to one sign, such as an emoji.
_JOINERS = "\u200c\u200d"
# Those that change the order in which a terminal shows letters, which may hide what a command does;
# they take no cell. The first two reverse letters whatever their script.
_OVERRIDES = "\u202d\u202e"
ORDER_MARKS = f"{_OVERRIDES}\u202a\u202b\u202c\u2066\u2067\u2068\u2069"
_REPLACEMENTS = {ord(each): "\ufffd" if each in _OVERRIDES else None for each in ORDER_MARKS}


def sanitized(text: str) -> str:
    """Return a text without characters that a terminal obeys; the worst are replaced by U+FFFD.

    The pieces of a text may be passed one by one.
    """
    return without_controls(text).translate(_REPLACEMENTS)


def single_line(text: str) -> str:
    """Join the words of a text with single spaces, and remove what is not printable."""
    return printable(" ".join(text.split()), also=_JOINERS, instead="")
