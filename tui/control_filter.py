"""Control filter: nothing on the screen is obeyed by the terminal, wherever it came from."""

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from localspec_tui.sanitized import sanitized


class ControlFilter(LineFilter):
    """Replaces the control characters of names, notes and answers by a replacement character.

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
    return sanitized(text.replace("\r", "\ufffd").replace("\n", "\ufffd"))
