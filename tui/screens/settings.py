"""Settings screen: the model, its drafters, and the sampling."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.suggester import SuggestFromList
from textual.widgets import Input, Label, OptionList
from textual.widgets.option_list import Option

from localspec.drafters.model_free import MODEL_FREE
from localspec.drafters.spec import AUTO, NONE
from localspec.errors import InvalidValueError, LocalspecError
from localspec.generation_config import GenerationConfig
from localspec.models import registry
from localspec.models.inventory import InventoryEntry, model_inventory
from localspec.utils.format import format_bytes
from localspec_tui.labels import model_label
from localspec_tui.sampling_defaults import RARE, SAMPLING_DEFAULTS, USUAL
from localspec_tui.sampling_values import sampling_value
from localspec_tui.screens.dialog import Dialog
from localspec_tui.session_settings import SessionSettings
from localspec_tui.widgets.key_bar import KeyBar
from localspec_tui.widgets.ordered_input import OrderedInput
from localspec_tui.widgets.problem_line import ProblemLine

# What `draft` may be without a model.
_DRAFTERS = {
    AUTO: "what fits the model, and suffix",
    NONE: "plain decoding",
    **dict.fromkeys(MODEL_FREE, "copies from the text"),
}


def _label(name: str) -> str:
    first, *rest = name.split("_")
    return " ".join([first.upper() if first in ("dry", "xtc") else first, *rest])


class SettingsScreen(Dialog[tuple[str | None, SessionSettings] | None]):
    """Returns the model and the new settings, or None if the user pressed Escape.

    model: the one in use; None is the bundled pair. current: the settings in use. problem: why no
    model is loaded; empty if one is. usual: what the empty rows stand for now.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Leave it"),
        Binding("ctrl+s,enter", "apply", "Use this"),
    ]

    def __init__(
        self,
        model: str | None,
        current: SessionSettings,
        problem: str = "",
        usual: Mapping[str, str] = SAMPLING_DEFAULTS,
    ) -> None:
        super().__init__()
        self._model, self._current = model, current
        self._problem = problem
        self._usual = usual
        self._models: Sequence[InventoryEntry] = ()

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="page", can_focus=False):
            yield ProblemLine(id="problem")
            yield from self._choice("model", self._model or "", "the bundled pair")
            yield from self._choice("draft", self._current.draft, AUTO)
            yield from self._sampling(USUAL)
            when_full = "drop" if self._current.drop_oldest else ""
            yield from self._row("when_full", when_full, "stop (or drop the oldest messages)")
            yield from self._sampling(RARE)
        yield KeyBar()

    def _sampling(self, names: Iterable[str]) -> ComposeResult:
        for name in names:
            value = self._current.sampling.get(name)
            yield from self._row(name, "" if value is None else str(value), self._usual[name])

    def _row(
        self, name: str, value: str, default: str, *, select_on_focus: bool = False
    ) -> ComposeResult:
        with Horizontal(classes="row"):
            yield Label(_label(name))
            yield OrderedInput(
                value, placeholder=default, id=name, compact=True, select_on_focus=select_on_focus
            )

    def _choice(self, name: str, value: str, default: str) -> ComposeResult:
        """A row, and below it a list of known values while the row has the focus."""
        with Vertical(classes="choice"):
            yield from self._row(name, value, default, select_on_focus=True)
            yield OptionList(id=f"{name}s", markup=False)

    def on_mount(self) -> None:
        self._show_problem(self._problem)
        self._find_models()

    def on_descendant_focus(self) -> None:
        """Show the list of the row that has the focus."""
        for choice in self.query(".choice"):
            options = choice.query_one(OptionList)
            options.display = bool(options.option_count) and self.focused in [*choice.query("*")]

    @work(thread=True)
    def _find_models(self) -> None:
        """Find the models on this disk, in a thread because that may take a second."""
        try:
            models = model_inventory()
        except (LocalspecError, OSError) as error:
            problem = f"the models on this disk cannot be listed: {error}"
            self.app.call_from_thread(self._unless_left, lambda: self._show_problem(problem))
            return
        self.app.call_from_thread(self._unless_left, lambda: self._list_models(models))

    def _unless_left(self, show: Callable[[], object]) -> None:
        """Show what was found, unless the rows of the screen are gone meanwhile."""
        if self.query("#model") and self.query(ProblemLine):
            show()

    def _list_models(self, models: Sequence[InventoryEntry]) -> None:
        self._models = models
        names = [each.name for each in models]
        self.query_one("#model", Input).suggester = SuggestFromList(names)
        sizes = {each.name: format_bytes(each.stored.size) for each in models}
        self._offer("model", sizes)
        self._offer_drafters()

    def _offer(self, name: str, values: Mapping[str, str]) -> None:
        """Fill the list of a row. values: what each stands for."""
        options = self.query_one(f"#{name}s", OptionList)
        options.set_options(
            Option(f"{model_label(value)}  {about}", id=value) for value, about in values.items()
        )
        options.highlighted = 0 if values else None
        self.on_descendant_focus()

    @on(Input.Changed, "#model")
    def _offer_drafters(self) -> None:
        """Offer the drafters that fit the model that is typed."""
        typed = self._typed("model") or str(registry.bundled().target)
        fitting = [
            drafter
            for each in self._models
            if typed in (each.name, str(each.stored.files[0]))
            for drafter in each.drafters
        ]
        drafters = {**_DRAFTERS, **dict.fromkeys(fitting, "a smaller model that fits")}
        self._offer("draft", drafters)
        self.query_one("#draft", Input).suggester = SuggestFromList([*drafters])

    @on(OptionList.OptionSelected)
    def _select(self, event: OptionList.OptionSelected) -> None:
        chosen = self.query_one(f"#{str(event.option_list.id)[:-1]}", Input)
        chosen.value = str(event.option_id)
        chosen.focus()

    @on(Input.Submitted)
    def action_apply(self) -> None:
        """Return the settings that were typed, or show what is wrong with them."""
        try:
            values = {name: sampling_value(name, self._typed(name)) for name in SAMPLING_DEFAULTS}
            GenerationConfig.of(**values)
            drop_oldest = self._drop_oldest()
        except InvalidValueError as error:
            self._show_problem(str(error))
            return
        # Options that have no row here, as of the command line, stay.
        sampling = {**self._current.sampling, **values}
        settings = replace(
            self._current,
            draft=self._typed("draft") or AUTO,
            sampling={name: value for name, value in sampling.items() if value is not None},
            drop_oldest=drop_oldest,
        )
        self.dismiss((self._typed("model") or None, settings))

    def _drop_oldest(self) -> bool:
        typed = self._typed("when_full") or "stop"
        if typed not in ("stop", "drop"):
            raise InvalidValueError(f"when_full is {typed!r}; it must be stop or drop")
        return typed == "drop"

    def _typed(self, name: str) -> str:
        return self.query_one(f"#{name}", Input).value.strip()

    def _show_problem(self, problem: str) -> None:
        self.query_one(ProblemLine).show(problem)
