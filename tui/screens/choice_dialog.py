"""Choice dialog: asks a question that has a few answers."""

from collections.abc import Mapping
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Label, OptionList
from textual.widgets.option_list import Option

from localspec_tui.screens.dialog import Dialog


class ChoiceDialog(Dialog[str | None]):
    """Returns the key of the chosen answer, or None if the user pressed Escape.

    choices: the text of each answer, by its key. gives_way: whether a letter closes it, because it
    was meant for the text box: the user has not asked for the question.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Leave it"),
    ]

    def __init__(
        self, question: str, choices: Mapping[str, str], *, gives_way: bool = False
    ) -> None:
        super().__init__()
        self.gives_way = gives_way
        self._question = question
        self._choices = choices

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label(self._question, markup=False)
            yield OptionList(
                *(Option(text, id=key) for key, text in self._choices.items()), markup=False
            )

    @on(OptionList.OptionSelected)
    def _choose(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)
