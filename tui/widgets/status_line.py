"""Status line: speed, acceptance rate, context and drafters, in one row."""

from typing import ClassVar

from textual.content import Content
from textual.widget import Widget

from localspec_tui.status import SEPARATOR, Field, Status, fields, fitting


class StatusLine(Widget):
    """One row, always visible. Fields that do not fit are left out."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"status--warning", "status--full"}
    DEFAULT_CSS = """
    StatusLine {
        height: 1;
        padding: 0 1;
        color: $foreground 80%;
        & > .status--warning { color: $text-warning; text-style: bold; }
        & > .status--full { color: $text-error; text-style: bold underline; }
        &:ansi { color: ansi_default; }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._fields: list[Field] = []

    def show(self, status: Status) -> None:
        """Show a status."""
        found = fields(status)
        if found != self._fields:
            self._fields = found
            self.refresh()

    def render(self) -> Content:
        kept = fitting(self._fields, self.size.width)
        return Content(SEPARATOR).join(Content.styled(each.text, each.style) for each in kept)
