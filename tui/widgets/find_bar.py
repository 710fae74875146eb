"""Find bar: what is looked for in the conversation, and how often it was found."""

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input, Label

from localspec_tui.widgets.ordered_input import OrderedInput


class FindBar(Horizontal):
    """Where the user types what to look for; hidden until it is opened.

    find: looks for a text. move: shows another place, the next one for 1, the one before for -1.
    close: looks for nothing any more.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Close", tooltip="what was found stays in sight"),
        Binding("down,f3", "move(1)", "Next", tooltip="Enter does it, too"),
        Binding("up,shift+f3", "move(-1)", "Previous", tooltip="the place before"),
    ]
    DEFAULT_CSS = """
    FindBar {
        height: 1;
        margin: 0 2;
        & > Label { color: $foreground 60%; }
        & > Input { width: 1fr; }
        &:ansi > Label { color: ansi_default; }
    }
    """

    def __init__(
        self,
        find: Callable[[str], None],
        move: Callable[[int], None],
        close: Callable[[], None],
        *,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self._find, self._move, self._close = find, move, close
        self._found = Label(id="found", markup=False)

    def compose(self) -> ComposeResult:
        yield Label("Find: ")
        yield OrderedInput(compact=True, select_on_focus=True)
        yield self._found

    def on_mount(self) -> None:
        self.display = False

    def open(self, text: str = "") -> None:
        """Show the bar. text: what is looked for; empty: what was looked for last."""
        self.display = True
        field = self.query_one(Input)
        field.value = text or field.value
        field.focus()

    def show_count(self, number: int, count: int) -> None:
        """Show how often the text was found. number: of the place that is shown, from 1."""
        self._found.update(f" {number:,} of {count:,}" if count else " nothing")

    def show_reading(self, count: int) -> None:
        """Show how often the text was found so far."""
        self._found.update(f" {count:,} so far")

    def show_nothing(self) -> None:
        """Show that no text is looked for."""
        self._found.update("")

    @property
    def text(self) -> str:
        """What is looked for; empty while the bar is hidden."""
        return self.query_one(Input).value if self.display else ""

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self._find(event.value)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_move(1)

    def action_move(self, step: int) -> None:
        """Show another place."""
        self._move(step)

    def action_close(self) -> None:
        """Hide the bar."""
        self.display = False
        self._close()
