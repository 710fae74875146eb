"""Sessions screen: lists, searches and deletes saved sessions."""

from collections.abc import Callable, Iterator
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Label, OptionList
from textual.widgets.option_list import Option

from localspec.errors import LocalspecError
from localspec.utils.format import ago
from localspec_tui.archive import Archive
from localspec_tui.labels import messages_text, model_label
from localspec_tui.notes import KEY_LETTERS
from localspec_tui.saved_session import SavedSession, SessionSummary
from localspec_tui.screens.choice_dialog import ChoiceDialog
from localspec_tui.screens.dialog import Dialog
from localspec_tui.screens.export_dialog import ask_export
from localspec_tui.screens.input_dialog import InputDialog
from localspec_tui.search_index import Hit
from localspec_tui.widgets.key_bar import KeyBar
from localspec_tui.widgets.ordered_input import OrderedInput

# More would make each letter slow.
_MAX_ROWS = 2000


class SessionsScreen(Dialog[tuple[str, str | None] | None]):
    """Returns the keys of the session to resume and of the turn that was found in it, if any.

    It returns None if the user pressed Escape.

    The input matches titles first, then turns that contain all of its words. current: key of the
    open session, which cannot be deleted. read: reads the session with a key, to export it; raises
    LocalspecError. forget: deletes what the model has read of the session with a key.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Close"),
        Binding("down", "move(1)", "Next", show=False),
        Binding("up", "move(-1)", "The one before", show=False),
        Binding("pagedown", "list('page_down')", "A page down", show=False),
        Binding("pageup", "list('page_up')", "A page up", show=False),
        Binding("ctrl+home", "list('first')", "The first", show=False),
        Binding("ctrl+end", "list('last')", "The last", show=False),
        # In a text these move the cursor.
        Binding("home", "whole_list('first')", "The first", show=False, priority=True),
        Binding("end", "whole_list('last')", "The last", show=False, priority=True),
        Binding("ctrl+t", "rename", "Title"),
        Binding("ctrl+s", "export", "Save to a file"),
        Binding("ctrl+d", "delete", "Delete", priority=True),
    ]

    def __init__(
        self,
        archive: Archive,
        current: str | None,
        read: Callable[[str], SavedSession],
        forget: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._archive, self._read, self._forget = archive, read, forget
        self._current = current
        self._listed: list[tuple[SessionSummary, Hit | None]] = []

    def compose(self) -> ComposeResult:
        with Vertical(classes="page"):
            yield OrderedInput(placeholder="Find by title or by what was said", compact=True)
            yield OptionList(markup=False)
            yield Label(id="rest")
        yield KeyBar()

    def on_mount(self) -> None:
        self._refresh_list()
        # Typing goes on in the box while the arrows move in the list.
        self.query_one(OptionList).can_focus = False

    @on(Input.Changed)
    def _refresh_list(self) -> None:
        typed = self.query_one(Input).value.strip()
        try:
            found = list(self._matches(typed))
        except LocalspecError as error:
            self._show_error(error)
            return
        self._listed = rows = found[:_MAX_ROWS]
        options, rest = self.query_one(OptionList), self.query_one("#rest", Label)
        options.set_options(Option(self._row_text(summary, hit)) for summary, hit in rows)
        options.display = bool(rows)
        rest.display = not rows or len(found) > len(rows)
        left = f"{len(found) - len(rows):,} more: type a word of theirs"
        rest.update(left if rows else "No conversation found.")
        if rows:
            options.highlighted = 0

    def _matches(self, typed: str) -> Iterator[tuple[SessionSummary, Hit | None]]:
        """The sessions that match the input, each with the matching turn, if any."""
        summaries = self._archive.list()
        if not typed:
            yield from ((summary, None) for summary in summaries)
            return
        phrase = typed.casefold()
        titles = {each.key: each.title.casefold() for each in summaries}
        titled = [
            each for each in summaries if all(word in titles[each.key] for word in phrase.split())
        ]
        best_first = sorted(titled, key=lambda each: phrase not in titles[each.key])
        yield from ((each, None) for each in best_first)
        listed = {each.key for each in titled}
        for summary, hit in self._archive.search(typed):
            if summary.key not in listed:
                yield summary, hit

    def _row_text(self, summary: SessionSummary, hit: Hit | None) -> Text:
        open_now = " (open)" if summary.key == self._current else ""
        facts = [
            model_label(summary.model),
            messages_text(summary.turns),
            ago(summary.changed.timestamp()),
            summary.key[:KEY_LETTERS],
        ]
        text = Text(f"{summary.title}{open_now}", no_wrap=True, overflow="ellipsis")
        text.append(f"\n{' · '.join(facts)}", "dim")
        if hit:
            text.append(f"\n{hit.snippet}", "italic")
        return text

    @property
    def _highlighted(self) -> SessionSummary | None:
        at = self.query_one(OptionList).highlighted
        return None if at is None or not self._listed else self._listed[at][0]

    def action_move(self, step: int) -> None:
        """Move the highlight up or down. step: rows, negative for up."""
        options = self.query_one(OptionList)
        if options.highlighted is not None:
            options.highlighted = min(max(0, options.highlighted + step), len(self._listed) - 1)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether the key of an action works now."""
        return action != "whole_list" or not self.query_one(Input).value

    async def action_list(self, move: str) -> None:
        """Move the highlight. move: an action of the list."""
        await self.query_one(OptionList).run_action(move)

    # Where nothing is typed.
    action_whole_list = action_list

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _open(self) -> None:
        if session := self._highlighted:
            hit = dict(self._listed).get(session)
            self.dismiss((session.key, hit.key if hit else None))

    def _change(self, change: Callable[[], None]) -> None:
        """Change the archive. The highlight stays where it is."""
        options, session = self.query_one(OptionList), self._highlighted
        at = options.highlighted or 0
        try:
            change()
        except LocalspecError as error:
            self._show_error(error)
        self._refresh_list()
        keys = [summary.key for summary, _ in self._listed]
        if session and session.key in keys:
            options.highlighted = keys.index(session.key)
        elif keys:
            options.highlighted = min(at, len(keys) - 1)

    def _show_error(self, error: LocalspecError) -> None:
        self.notify(str(error), severity="error", markup=False)

    def action_rename(self) -> None:
        """Ask for another title of the highlighted session."""
        if not (session := self._highlighted):
            return

        def renamed(title: str | None) -> None:
            if title:
                self._change(lambda: self._archive.rename(session.key, title))

        self.app.push_screen(InputDialog("Its title:", session.title), renamed)

    def action_export(self) -> None:
        """Ask for a path, and write the highlighted session there."""
        if session := self._highlighted:
            try:
                ask_export(self.app, self._read(session.key))
            except LocalspecError as error:
                self._show_error(error)

    def action_delete(self) -> None:
        """Delete the highlighted session, after a question."""
        session = self._highlighted
        if not session or session.key == self._current:
            if session:
                self.notify("it is open; open another first", timeout=3)
            return

        def answered(choice: str | None) -> None:
            if choice == "delete":
                self._change(lambda: self._archive.delete(session.key))
                self._forget(session.key)

        choices = {"keep": "Keep it", "delete": "Delete this conversation"}
        question = f"Delete “{session.title}”, {messages_text(session.turns)}?"
        self.app.push_screen(ChoiceDialog(question, choices), answered)
