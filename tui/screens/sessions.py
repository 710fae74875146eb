"""Sessions: the conversations that are kept."""

from collections.abc import Callable, Iterator
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.fuzzy import FuzzySearch
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Label, OptionList
from textual.widgets.option_list import Option

from localspec.errors import LocalspecError
from localspec.utils.format import ago
from localspec_tui.archive import Archive, Summary
from localspec_tui.messages import model_name
from localspec_tui.screens.ask import AskScreen
from localspec_tui.screens.choose import ChooseScreen
from localspec_tui.screens.export import export

_SHOWN = 200
# Enough to tell one from the others, for --resume.
_KEY_LETTERS = 8


class SessionsScreen(ModalScreen[str | None]):
    """The key of the conversation to go on with; None where it was left.

    What is typed finds titles that are alike, and behind them texts that hold the words.
    current: of the conversation that is open, which is not to be deleted under it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Close"),
        Binding("down", "move(1)", "Next", show=False),
        Binding("up", "move(-1)", "The one before", show=False),
        Binding("ctrl+t", "rename", "Title"),
        Binding("ctrl+s", "export", "Save to a file"),
        Binding("ctrl+d", "delete", "Delete", priority=True),
    ]

    def __init__(self, archive: Archive, current: str | None) -> None:
        super().__init__()
        self._archive = archive
        self._current = current
        self._found: list[Summary] = []

    def compose(self) -> ComposeResult:
        with Vertical(classes="page"):
            yield Input(placeholder="Find by title or by what was said", compact=True)
            yield OptionList(markup=False)
            yield Label("Nothing is kept yet, or nothing is alike.", id="nothing")
        yield Footer()

    def on_mount(self) -> None:
        self._list_anew()
        # Typing goes on in the box while the arrows move in the list.
        self.query_one(OptionList).can_focus = False

    @on(Input.Changed)
    def _list_anew(self) -> None:
        typed = self.query_one(Input).value.strip()
        try:
            rows = list(self._rows(typed))[:_SHOWN]
        except LocalspecError as error:
            self._complain(error)
            return
        self._found = [summary for summary, _ in rows]
        options = self.query_one(OptionList)
        options.set_options(Option(self._shown(summary, snippet)) for summary, snippet in rows)
        options.display = bool(rows)
        self.query_one("#nothing").display = not rows
        if rows:
            options.highlighted = 0

    def _rows(self, typed: str) -> Iterator[tuple[Summary, str]]:
        """Every conversation that is meant, with where it says so."""
        everything = self._archive.list()
        if not typed:
            yield from ((summary, "") for summary in everything)
            return
        search = FuzzySearch()
        scores = {each.key: search.match(typed, each.title)[0] for each in everything}
        alike = [each for each in everything if scores[each.key]]
        yield from ((each, "") for each in sorted(alike, key=lambda each: -scores[each.key]))
        for summary, snippet in self._archive.search(typed):
            if not scores.get(summary.key):
                yield summary, snippet

    def _shown(self, summary: Summary, snippet: str) -> Text:
        open_now = " (open)" if summary.key == self._current else ""
        facts = [
            model_name(summary.model),
            f"{summary.turns} messages",
            ago(summary.changed.timestamp()),
            summary.key[:_KEY_LETTERS],
        ]
        text = Text(f"{summary.title}{open_now}", no_wrap=True, overflow="ellipsis")
        text.append(f"\n{' · '.join(facts)}", "dim")
        if snippet:
            text.append(f"\n{snippet}", "italic")
        return text

    @property
    def _chosen(self) -> Summary | None:
        at = self.query_one(OptionList).highlighted
        return None if at is None or not self._found else self._found[at]

    def action_move(self, by: int) -> None:
        """To the next in the list, or the one before."""
        options = self.query_one(OptionList)
        if options.highlighted is not None:
            options.highlighted = min(max(0, options.highlighted + by), len(self._found) - 1)

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _open(self) -> None:
        if chosen := self._chosen:
            self.dismiss(chosen.key)

    def _do(self, change: Callable[[], None]) -> None:
        try:
            change()
        except LocalspecError as error:
            self._complain(error)
        self._list_anew()

    def _complain(self, error: LocalspecError) -> None:
        self.notify(str(error), severity="error", markup=False)

    def action_rename(self) -> None:
        """Give it another title."""
        if not (chosen := self._chosen):
            return

        def renamed(title: str | None) -> None:
            if title:
                self._do(lambda: self._archive.rename(chosen.key, title))

        self.app.push_screen(AskScreen("Its title:", chosen.title), renamed)

    def action_export(self) -> None:
        """Write it to a file, for people or for programs."""
        if chosen := self._chosen:
            export(self.app, self._archive, chosen.key)

    def action_delete(self) -> None:
        """Delete it, once that was said twice."""
        chosen = self._chosen
        if not chosen or chosen.key == self._current:
            if chosen:
                self.notify("it is open; begin another one first", timeout=3)
            return

        def answered(answer: str | None) -> None:
            if answer == "delete":
                self._do(lambda: self._archive.delete(chosen.key))

        answers = {"keep": "Keep it", "delete": "Delete it for good"}
        question = f"Delete “{chosen.title}”, {chosen.turns} messages?"
        self.app.push_screen(ChooseScreen(question, answers), answered)
