"""Conversation view: the turns of the active branch, with notes between them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import is_
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from localspec.conversation.turns import Turn
from localspec_tui.code_blocks import code_blocks
from localspec_tui.common_prefix import common_prefix_length
from localspec_tui.widgets.entry_window import EntryWindow
from localspec_tui.widgets.note_entry import NoteEntry
from localspec_tui.widgets.turn_entry import TurnEntry
from localspec_tui.widgets.turn_view import TurnView

_VARIANTS = Binding.Group("Variants", compact=True)

MakeTurnEntry = Callable[[Turn], TurnEntry]


class ConversationView(EntryWindow, can_focus=False):
    """make_entry: called for each turn that is shown."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move_focus(-1)", "Previous message", show=False),
        Binding("down", "move_focus(1)", "Next message", show=False),
        Binding("left", "switch_variant(-1)", "Previous variant", group=_VARIANTS),
        Binding("right", "switch_variant(1)", "Next variant", group=_VARIANTS),
        Binding("e", "edit", "Edit", tooltip="as a variant; what follows stays a branch"),
        Binding("y", "copy", "Copy"),
        Binding("c", "copy_code", "Copy code", tooltip="its last block; again: the one before"),
    ]

    @dataclass
    class EditRequested(Message):
        """The user wants to edit a question or an answer."""

        turn: Turn

    @dataclass
    class VariantRequested(Message):
        """The user wants another variant of a turn. step: 1 for the next, -1 for the one before."""

        turn: Turn
        step: int

    @dataclass
    class CopyRequested(Message):
        """The user wants to copy a turn. code: only one of its code blocks."""

        turn: Turn
        code: bool

    class Exited(Message):
        """The user moved the focus down from the last turn, or away from where a turn had it."""

    def __init__(self, make_entry: MakeTurnEntry, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._make_entry = make_entry

    # Turns and notes.

    @property
    def turn_entries(self) -> list[TurnEntry]:
        """The turns that are shown, the oldest first."""
        return [entry for entry in self.entries if isinstance(entry, TurnEntry)]

    @property
    def turn_views(self) -> list[TurnView]:
        """The mounted turn views, the oldest first."""
        return [view for view in self.views if isinstance(view, TurnView)]

    @property
    def last_turn(self) -> TurnEntry | None:
        """The last turn that is shown."""
        backwards = reversed(self.entries)
        return next((entry for entry in backwards if isinstance(entry, TurnEntry)), None)

    def entry_of(self, turn: Turn) -> TurnEntry | None:
        """The entry of a turn, if it is shown."""
        return next((entry for entry in self.turn_entries if entry.turn is turn), None)

    def show(self, turns: Sequence[Turn]) -> None:
        """Show these turns. The entries of turns that are shown already stay."""
        before = self.turn_entries
        same = common_prefix_length([entry.turn for entry in before], turns, is_)
        at = self.entries.index(before[same]) if same < len(before) else len(self.entries)
        self.replace_from(at, map(self._make_entry, turns[same:]))

    def note(self, line: str, *, warning: bool = False) -> None:
        """Show a note after the last turn, unless the last one says the same."""
        last = self.entries[-1] if self.entries else None
        if isinstance(last, NoteEntry) and last.text == line:
            return
        self.replace_from(len(self.entries), [NoteEntry(line, warning)])

    def clear(self) -> None:
        """Remove all turns and notes."""
        self.replace_from(0, [])

    def go_to(self, turn: Turn) -> None:
        """Scroll to a turn, if it is shown, and stay there."""
        if entry := self.entry_of(turn):
            self.pin(entry, 0)

    def scroll_to_found(self, turn: Turn) -> None:
        """Scroll to the place in a turn that was found, if it is mounted."""
        entry = self.entry_of(turn)
        if entry and entry.view:
            self.pin(entry, entry.view.found_row - self.size.height // 3)

    # Keys.

    def focus_unmounted(self) -> None:
        self.post_message(self.Exited())

    @property
    def focused_turn_view(self) -> TurnView | None:
        """The turn view that has the focus, or that contains the widget with the focus."""
        focused = self.screen.focused
        nodes = focused.ancestors_with_self if focused else []
        return next((node for node in nodes if isinstance(node, TurnView)), None)

    @property
    def focused_turn(self) -> TurnEntry | None:
        """The turn that has the focus."""
        return view.entry if (view := self.focused_turn_view) else None

    def uses(self, key: str) -> bool:
        """Whether a key is a command for the turn that has the focus."""
        return self.focused_turn is not None and key in self._bindings.key_to_bindings

    def focus_turn(self, turn: Turn) -> None:
        """Focus a turn, if it is shown."""
        if entry := self.entry_of(turn):
            self._focus(entry)

    def _focus(self, entry: TurnEntry) -> None:
        if entry.view:
            entry.view.focus()
        else:
            self.pin(entry, 0)
            self.call_after_refresh(self._focus, entry)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether the key of an action works for the turn that has the focus."""
        if not (focused := self.focused_turn):
            return True
        match action:
            case "edit":
                return focused.can_be_edited
            case "switch_variant":
                return focused.has_variants
            case "copy_code":
                return bool(code_blocks(focused.turn.content))
        return True

    def action_move_focus(self, step: int) -> None:
        """Focus the next turn, or the one before for -1. Without a focus, focus the last turn."""
        focused, turns = self.focused_turn, self.turn_entries
        number = turns.index(focused) + step if focused else len(turns) - 1
        if number >= len(turns):
            self.post_message(self.Exited())
        elif number >= 0:
            self._focus(turns[number])

    def action_switch_variant(self, step: int) -> None:
        """Ask for another variant of the turn."""
        if entry := self._target:
            self.post_message(self.VariantRequested(entry.turn, step))

    def action_edit(self) -> None:
        """Ask to edit the turn."""
        if (entry := self._target) and entry.can_be_edited:
            self.post_message(self.EditRequested(entry.turn))

    def action_copy(self) -> None:
        """Ask to copy the turn."""
        if entry := self._target:
            self.post_message(self.CopyRequested(entry.turn, code=False))

    def action_copy_code(self) -> None:
        """Ask to copy a code block of the turn."""
        if entry := self._target:
            self.post_message(self.CopyRequested(entry.turn, code=True))

    @property
    def _target(self) -> TurnEntry | None:
        """The turn that keys act on: the one with the focus, else the last."""
        return self.focused_turn or self.last_turn
