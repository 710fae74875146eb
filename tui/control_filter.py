"""Control filter: nothing on the screen is obeyed by the terminal, wherever it came from."""

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from localspec_tui.sanitized import ORDER_MARKS, sanitized

_WITHOUT_ORDER_MARKS = dict.fromkeys(map(ord, ORDER_MARKS))


class ControlFilter(LineFilter):
    """Replaces the control characters of names, notes and answers by a replacement character.

    Those that change the order of letters are removed, because they take no cell.

    Textual draws with segments whose text has none of its own.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Replace the text of the segments."""
        return [
            segment
            if segment.control or segment.text.isprintable()
            else Segment(_replaced(segment.text), segment.style)
            for segment in segments
        ]


def _replaced(text: str) -> str:
    text = text.translate(_WITHOUT_ORDER_MARKS)
    return sanitized(text.replace("\r", "\ufffd").replace("\n", "\ufffd"))
