"""Text pattern: what finds a text within one conversation, on the screen and without one."""

import re


def pattern_of(text: str) -> re.Pattern[str]:
    """What finds a text, however its letters are written, and where it is wrapped."""
    words = [re.escape(word) for word in text.split()]
    return re.compile(r"\s+".join(words), re.IGNORECASE)


def lines_with(pattern: re.Pattern[str], text: str) -> list[str]:
    """The lines of a text that have what a pattern finds; several where it is wrapped."""
    found = dict[str, None]()
    for match in pattern.finditer(text):
        begin, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
        found[text[begin:] if end < 0 else text[begin:end]] = None
    return [*found]
