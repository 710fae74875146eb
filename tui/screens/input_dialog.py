"""Input dialog: asks for one line of text."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Label

from localspec_tui.screens.dialog import Dialog
from localspec_tui.widgets.ordered_input import OrderedInput


class InputDialog(Dialog[str | None]):
    """Returns the text, or None if the user left it empty or pressed Escape.

    value: the text to start with.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Leave it"),
    ]

    def __init__(self, question: str, value: str = "") -> None:
        super().__init__()
        self._question = question
        self._value = value

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label(self._question)
            yield OrderedInput(self._value, compact=True, select_on_focus=False)

    @on(Input.Submitted)
    def _submit(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)
