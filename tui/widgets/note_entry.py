"""Note entry: a line of the chat itself, between the turns."""

from dataclasses import dataclass

from textual.widgets import Static


class Note(Static):
    """Shows the line."""

    def __init__(self, line: str, *, warning: bool = False) -> None:
        super().__init__(line, markup=False, classes="warning" if warning else "")


@dataclass(frozen=True, slots=True, eq=False)
class NoteEntry:
    """text: one or several lines."""

    text: str
    is_warning: bool

    def make_view(self) -> Note:
        """Make the view."""
        return Note(self.text, warning=self.is_warning)

    def drop_view(self) -> None:
        """Nothing changes in a note."""
