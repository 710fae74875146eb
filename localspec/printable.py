"""Printable: text from outside, such as a file's, as a line of output may show it."""


def printable(text: str, *, also: str = "", instead: str = "?") -> str:
    """A text without what would move a terminal's cursor. also: letters that may stay."""
    return "".join(letter if letter.isprintable() or letter in also else instead for letter in text)
