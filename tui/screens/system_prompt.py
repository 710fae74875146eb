"""System prompt screen: the system prompt, and the presets."""

from collections.abc import Mapping
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Label, OptionList, TextArea
from textual.widgets.option_list import Option

from localspec.errors import InvalidValueError
from localspec_tui import presets
from localspec_tui.presets import Preset
from localspec_tui.screens.dialog import Dialog
from localspec_tui.screens.input_dialog import InputDialog
from localspec_tui.widgets.key_bar import KeyBar
from localspec_tui.widgets.problem_line import ProblemLine


class SystemPromptScreen(Dialog[Preset | None]):
    """Returns the system prompt, with the sampling of its preset; None if the user pressed Escape.

    current: the system prompt and sampling in use.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Leave it", priority=True),
        Binding("ctrl+s", "apply", "Use this"),
        Binding("ctrl+n", "save_preset", "Save as a preset"),
    ]

    def __init__(self, current: Preset) -> None:
        super().__init__()
        self._current = current
        self._presets: Mapping[str, Preset] = {}

    def compose(self) -> ComposeResult:
        with Vertical(classes="page"):
            yield Label("System prompt:", classes="heading")
            yield TextArea(self._current.system or "", highlight_cursor_line=False)
            yield ProblemLine(id="problem")
            yield OptionList(markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self._list_presets()

    def _list_presets(self) -> None:
        try:
            self._presets = presets.load_all()
        except InvalidValueError as error:
            self._show_problem(str(error))
        options = self.query_one(OptionList)
        options.set_options(
            Option(f"{name}: {_summary(preset)}", id=name) for name, preset in self._presets.items()
        )
        options.display = bool(self._presets)
        options.highlighted = 0 if self._presets else None

    @on(OptionList.OptionSelected)
    def _select_preset(self, event: OptionList.OptionSelected) -> None:
        self._current = self._presets[str(event.option_id)]
        self.query_one(TextArea).load_text(self._current.system or "")
        self.query_one(TextArea).focus()

    @property
    def _typed(self) -> Preset:
        return Preset(self.query_one(TextArea).text.strip() or None, self._current.options)

    def action_apply(self) -> None:
        """Return the system prompt that was typed."""
        self.dismiss(self._typed)

    def action_save_preset(self) -> None:
        """Ask for a name, and save a preset."""

        def save(name: str | None) -> None:
            if not name:
                return
            try:
                presets.add(name, self._typed)
            except InvalidValueError as error:
                self._show_problem(str(error))
                return
            self._show_problem("")
            self._list_presets()

        self.app.push_screen(InputDialog("Name of the preset:"), save)

    def _show_problem(self, problem: str) -> None:
        self.query_one(ProblemLine).show(problem)


def _summary(preset: Preset) -> str:
    options = [f"{name} {value}" for name, value in preset.options.items()]
    return " · ".join([(preset.system or "no system prompt").split("\n")[0][:60], *options])
