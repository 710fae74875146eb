"""GenerationConfig: the model, what drafts for it, and how tokens are chosen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen
from textual.suggester import SuggestFromList
from textual.widgets import Footer, Input, Label, OptionList
from textual.widgets.option_list import Option

from localspec.errors import InvalidValueError, LocalspecError
from localspec.generation_config import GenerationConfig
from localspec.loading.drafter_loader import AUTO, MODEL_FREE, NONE
from localspec.models.inventory import InventoryEntry, model_inventory
from localspec.utils.format import format_bytes

_OWN = "the model's own, else {}"
# What an empty box stands for.
SAMPLING = {
    "temperature": _OWN.format("0.8"),
    "top_k": _OWN.format("40"),
    "top_p": _OWN.format("0.95"),
    "min_p": _OWN.format("0.05"),
    "typical_p": "1, which is off",
    "repeat_penalty": "1, which is off",
    "frequency_penalty": "0, which is off",
    "presence_penalty": "0, which is off",
    "penalty_window": "64",
    "max_tokens": "as many as fit",
    "seed": "drawn for each answer",
    "depth": "as many as pay",
    "rule": "coupled",
}
_WHOLE = {"top_k", "penalty_window", "max_tokens", "seed", "depth"}


@dataclass(frozen=True, slots=True)
class Chosen:
    """model, draft: as they are named. sampling: settings that are not the default. drop: whether
    the oldest turns go when the context is full.
    """

    model: str | None
    draft: str
    sampling: Mapping[str, Any] = field(default_factory=dict)
    drop: bool = False


class SettingsScreen(ModalScreen[Chosen | None]):
    """What is to hold from now on; None where it was left.

    problem: why it is shown, if something went wrong.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Leave it"),
        Binding("ctrl+s,enter", "use", "Use this"),
    ]

    def __init__(self, now: Chosen, problem: str = "") -> None:
        super().__init__()
        self._now = now
        self._problem = problem
        self._models: Sequence[InventoryEntry] = ()

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="page", can_focus=False):
            yield Label(self._problem, id="problem", markup=False)
            yield from self._row("model", self._now.model or "", "the one that comes along")
            yield OptionList(id="models", markup=False)
            yield from self._row("draft", self._now.draft, AUTO)
            for name, default in SAMPLING.items():
                value = self._now.sampling.get(name)
                yield from self._row(name, "" if value is None else str(value), default)
            when_full = "drop" if self._now.drop else ""
            yield from self._row("when_full", when_full, "stop; drop: the oldest messages go")
        yield Footer()

    def _row(self, name: str, value: str, default: str) -> ComposeResult:
        with Horizontal(classes="row"):
            yield Label(name.replace("_", " "))
            yield Input(value, placeholder=default, id=name, compact=True, select_on_focus=False)

    def on_mount(self) -> None:
        self._say(self._problem)
        self.query_one("#models", OptionList).display = False
        self._look()

    @work(thread=True)
    def _look(self) -> None:
        """Find the models on this disk, which may take a moment."""
        try:
            models = model_inventory()
        except (LocalspecError, OSError) as error:
            self.app.call_from_thread(self._say, f"the models on this disk are not known: {error}")
            return
        self.app.call_from_thread(self._offer, models)

    def _offer(self, models: Sequence[InventoryEntry]) -> None:
        self._models = models
        options = self.query_one("#models", OptionList)
        options.add_options(
            Option(f"{each.name}  {format_bytes(each.stored.size)}", id=str(number))
            for number, each in enumerate(models)
        )
        options.display = bool(models)
        options.highlighted = 0 if models else None
        names = [each.name for each in models]
        self.query_one("#model", Input).suggester = SuggestFromList(names)
        drafts = [AUTO, NONE, *MODEL_FREE, *names]
        self.query_one("#draft", Input).suggester = SuggestFromList(drafts)

    @on(OptionList.OptionSelected)
    def _take(self, event: OptionList.OptionSelected) -> None:
        box = self.query_one("#model", Input)
        box.value = self._models[event.option_index].name
        box.focus()

    @on(Input.Submitted)
    def action_use(self) -> None:
        """Go on with what is in the boxes, if it makes sense."""
        try:
            values = {name: self._value(name) for name in SAMPLING}
            GenerationConfig.of(**values)
            drop = self._drop()
        except InvalidValueError as error:
            self._say(str(error))
            return
        self.dismiss(
            Chosen(
                self._typed("model") or None,
                self._typed("draft") or AUTO,
                {name: value for name, value in values.items() if value is not None},
                drop,
            )
        )

    def _drop(self) -> bool:
        typed = self._typed("when_full") or "stop"
        if typed not in ("stop", "drop"):
            raise InvalidValueError(f"when_full is {typed!r}; it must be stop or drop")
        return typed == "drop"

    def _typed(self, name: str) -> str:
        return self.query_one(f"#{name}", Input).value.strip()

    def _value(self, name: str) -> str | int | float | None:
        typed = self._typed(name)
        if not typed or name == "rule":
            return typed or None
        try:
            return int(typed) if name in _WHOLE else float(typed)
        except ValueError as error:
            kind = "a whole number" if name in _WHOLE else "a number"
            raise InvalidValueError(f"{name} is {typed!r}; it must be {kind}") from error

    def _say(self, problem: str) -> None:
        label = self.query_one("#problem", Label)
        label.update(problem)
        label.display = bool(problem)
        if problem:
            label.scroll_visible()
