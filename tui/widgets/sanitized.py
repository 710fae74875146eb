"""Shown: text that somebody else wrote, as a terminal may show it."""

# Codes that move a cursor or change what is on the screen, and what ends lines elsewhere.
_CONTROLS = {*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029} - {ord("\n"), ord("\t")}
_INSTEAD: dict[int, str | None] = {**dict.fromkeys(_CONTROLS, "\ufffd"), ord("\r"): None}


def shown(text: str) -> str:
    """A text without what would do more than be seen, however it was cut into pieces."""
    return text.translate(_INSTEAD)
