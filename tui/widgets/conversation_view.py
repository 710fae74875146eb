"""Conversation view: the turns of the active branch, with notes between them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import is_
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Static

from localspec.conversation.turns import Turn
from localspec_tui.code_blocks import code_blocks
from localspec_tui.common_prefix import common_prefix_length
from localspec_tui.widgets.single_layout import SingleLayout
from localspec_tui.widgets.turn_view import TurnView

# Mounted rows above which the oldest turns are removed, and the rows that stay then.
_MAX_ROWS = 1500
_KEPT_ROWS = 750

_VARIANTS = Binding.Group("Variants", compact=True)

MakeTurnView = Callable[[Turn], TurnView]


class Note(Static):
    """A line of the chat itself."""

    def __init__(self, line: str, *, warning: bool = False) -> None:
        super().__init__(line, markup=False, classes="warning" if warning else "")


class ConversationView(VerticalScroll, SingleLayout, can_focus=False):
    """Follows its end until the user scrolls up. Only turns near the visible rows are mounted.

    make_turn_view: called for each turn that is mounted.
    """

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
        """The user moved the focus down from the last turn."""

    def __init__(self, make_turn_view: MakeTurnView, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._make_turn_view = make_turn_view
        self._turns: list[Turn] = []
        # Index of the first turn that is mounted.
        self._first = 0
        # The mounted children. Textual's own list still has those that are being removed.
        self._items: list[TurnView | Note] = []
        # While the user has scrolled up: the turn view at the upper edge, and how many of its rows
        # are above the edge.
        self._pinned: tuple[TurnView, int] | None = None

    def on_mount(self) -> None:
        self.anchor()
        self.screen.screen_layout_refresh_signal.subscribe(self, self._restore_scroll)

    # Turns and notes.

    @property
    def turn_views(self) -> list[TurnView]:
        """The mounted turn views, the oldest first."""
        return [item for item in self._items if isinstance(item, TurnView)]

    def show(self, turns: Sequence[Turn]) -> None:
        """Show these turns. The views of turns that are shown already stay."""
        same = common_prefix_length(self._turns, turns, is_)
        self._turns = [*turns]
        first = self._first_within(len(turns), 2 * max(self.size.height, 20))
        with self.app.batch_update():
            if same < self._first or same < first:
                self._remove(0, len(self._items))
                self._first = same = first
            else:
                self._remove(self._item_index(same - self._first), len(self._items))
            self._append(map(self._make_turn_view, turns[same:]))
        self._trim()

    def note(self, line: str, *, warning: bool = False) -> None:
        """Show a note after the last turn."""
        self._append([Note(line, warning=warning)])

    def follow_end(self) -> None:
        """Scroll to the end, and stay there while it grows."""
        self._pinned = None
        self.anchor()

    def go_to(self, turn: Turn) -> None:
        """Scroll to a turn, and stay there."""
        number = next(n for n, each in enumerate(self._turns) if each is turn)
        # With a screen of older turns, so that one can scroll up from it.
        if (first := self._first_within(number, self.size.height)) < self._first:
            self._mount_from(first)
        self.release_anchor()
        self._pinned = self.turn_views[number - self._first], 0
        self.refresh(layout=True)

    def scroll_to_found(self, turn: Turn) -> None:
        """Scroll to the place in a turn that was found, if it is mounted."""
        for view in self.turn_views:
            if view.turn is turn:
                self.release_anchor()
                self._pinned = view, view.found_row - self.size.height // 3
                self.refresh(layout=True)

    def clear(self) -> None:
        """Remove all turns and notes."""
        self._turns, self._first, self._pinned = [], 0, None
        self._remove(0, len(self._items))

    def _append(self, items: Iterable[TurnView | Note]) -> None:
        new = [*items]
        self._items += new
        self.mount_all(new)

    def _remove(self, start: int, end: int) -> None:
        removed, self._items[start:end] = self._items[start:end], []
        self.remove_children(removed)

    def _item_index(self, number: int) -> int:
        """Index of a turn view among the mounted children; their number if there is none."""
        views = self.turn_views
        return self._items.index(views[number]) if number < len(views) else len(self._items)

    def _first_within(self, end: int, rows: int) -> int:
        """Index of a turn, so that the turns from it up to `end` fill about so many rows."""
        first = end
        while first > 0 and rows > 0:
            first -= 1
            rows -= self._rows(self._turns[first])
        return first

    def _rows(self, turn: Turn) -> int:
        """Estimate the rows of a turn."""
        width = max(20, self.size.width - 4)
        return 2 + sum(1 + len(line) // width for line in turn.content.split("\n"))

    # Scrolling back.

    def _scroll_update(self, virtual_size: Size) -> None:
        """Have the scrollbar drawn together with the text, instead of a frame later."""
        super()._scroll_update(virtual_size)
        if self.show_vertical_scrollbar:
            self.screen._compositor.update_widgets({self.vertical_scrollbar})

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self._pinned and not self._pinned[0].size.height:
            # It is mounted and not laid out yet: the view is on its way there.
            return
        at_end = new_value >= self.max_scroll_y
        self._pinned = None if at_end else self._turn_at(int(new_value))
        if new_value < old_value and new_value < self.size.height and self._first:
            self.call_next(self._mount_older)

    def _turn_at(self, row: int) -> tuple[TurnView, int] | None:
        """The turn view at a row, and how many of its own rows are above that row."""
        for view in self.turn_views:
            region = view.virtual_region
            if region.bottom > row:
                return view, row - region.y
        return None

    def _mount_older(self) -> None:
        """Mount older turns, about two screens of them."""
        self._mount_from(self._first_within(self._first, 2 * self.size.height))

    def _mount_from(self, first: int) -> None:
        """Mount the turns from this one on, which is older than those that are mounted."""
        end, self._first = self._first, first
        older = [self._make_turn_view(turn) for turn in self._turns[self._first : end]]
        if older:
            self.mount_all(older, before=self._items[0])
            self._items[:0] = older

    def _restore_scroll(self, _screen: Screen[object]) -> None:
        """Keep the visible rows in place when the height of the rows above them changes."""
        if self._pinned and self._pinned[0].is_mounted:
            view, above = pinned = self._pinned
            row = view.virtual_region.y + above
            if row != round(self.scroll_y):
                self.scroll_to(y=row, animate=False, force=True, immediate=True)
                self._pinned = pinned

    def _trim(self) -> None:
        """Remove the oldest turns, unless the user has scrolled up."""
        if self._pinned or self.virtual_size.height <= _MAX_ROWS:
            return
        first = self._first_within(len(self._turns), _KEPT_ROWS)
        if first > self._first:
            self._remove(0, self._item_index(first - self._first))
            self._first = first

    # Keys.

    @property
    def focused_turn_view(self) -> TurnView | None:
        """The turn view that has the focus, or that contains the widget with the focus."""
        focused = self.screen.focused
        nodes = focused.ancestors_with_self if focused else []
        return next((node for node in nodes if isinstance(node, TurnView)), None)

    def uses(self, key: str) -> bool:
        """Whether a key is a command for the turn that has the focus."""
        return self.focused_turn_view is not None and key in self._bindings.key_to_bindings

    def focus_turn(self, turn: Turn) -> None:
        """Focus a turn, if it is mounted."""
        for view in self.turn_views:
            if view.turn is turn:
                self.call_after_refresh(view.focus)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether the key of an action works for the turn that has the focus."""
        if not (focused := self.focused_turn_view):
            return True
        match action:
            case "edit":
                return focused.can_be_edited
            case "switch_variant":
                return focused.has_variants
            case "copy_code":
                return bool(code_blocks(focused.turn.content))
        return True

    def action_scroll_home(self) -> None:
        """Scroll to the first turn."""
        if self._first:
            self.go_to(self._turns[0])
        else:
            self.scroll_home(animate=False)

    def action_scroll_end(self) -> None:
        """Scroll to the end, and follow it again."""
        self.follow_end()

    def action_move_focus(self, step: int) -> None:
        """Focus the next turn, or the one before for -1. Without a focus, focus the last turn."""
        focused, views = self.focused_turn_view, self.turn_views
        number = views.index(focused) + step if focused else len(views) - 1
        if number >= len(views):
            self.post_message(self.Exited())
        elif number >= 0:
            views[number].focus()
        elif self._first:
            self._mount_older()
            self.call_after_refresh(self.action_move_focus, step)

    def action_switch_variant(self, step: int) -> None:
        """Ask for another variant of the turn."""
        if view := self._target_view:
            self.post_message(self.VariantRequested(view.turn, step))

    def action_edit(self) -> None:
        """Ask to edit the turn."""
        if (view := self._target_view) and view.can_be_edited:
            self.post_message(self.EditRequested(view.turn))

    def action_copy(self) -> None:
        """Ask to copy the turn."""
        if view := self._target_view:
            self.post_message(self.CopyRequested(view.turn, code=False))

    def action_copy_code(self) -> None:
        """Ask to copy a code block of the turn."""
        if view := self._target_view:
            self.post_message(self.CopyRequested(view.turn, code=True))

    @property
    def _target_view(self) -> TurnView | None:
        """The turn view that keys act on: the one with the focus, else the last."""
        return self.focused_turn_view or (self.turn_views[-1] if self._turns else None)
