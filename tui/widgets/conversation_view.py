"""Conversation view: turns of a branch, and notes between them, as far as they are looked at."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Static

from localspec.conversation.turns import Turn
from localspec_tui.code_blocks import last_code
from localspec_tui.widgets.single_layout import OnceLaid
from localspec_tui.widgets.turn_view import TurnView

# Rows that may be mounted while the end is looked at, and how many stay when it gets more.
_MOST_ROWS = 1500
_KEPT_ROWS = 750

_VARIANTS = Binding.Group("Variants", compact=True)

MakeView = Callable[[Turn], TurnView]


class Note(Static):
    """Something about the conversation that nobody said."""

    def __init__(self, line: str, *, warning: bool = False) -> None:
        super().__init__(line, markup=False, classes="warning" if warning else "")


class ConversationView(VerticalScroll, OnceLaid, can_focus=False):
    """Follows its end, until somebody scrolls up; older turns are mounted when they are near.

    make: a view for a turn.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "go(-1)", "Previous message", show=False),
        Binding("down", "go(1)", "Next message", show=False),
        Binding("left", "vary(-1)", "Previous variant", group=_VARIANTS),
        Binding("right", "vary(1)", "Next variant", group=_VARIANTS),
        Binding("e", "edit", "Edit", tooltip="and ask again; the rest stays as a branch"),
        Binding("y", "copy", "Copy"),
        Binding("c", "copy_code", "Copy code", tooltip="the last block of it"),
    ]

    @dataclass
    class Edited(Message):
        """A question is to be asked otherwise."""

        turn: Turn

    @dataclass
    class Varied(Message):
        """Another variant of an answer, or of a question, is wanted. by: how many further on."""

        turn: Turn
        by: int

    @dataclass
    class Copied(Message):
        """A message, or the last block of code in it, is to be copied."""

        turn: Turn
        code: bool

    class Left(Message):
        """The messages were left at their end."""

    def __init__(self, make: MakeView, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._make = make
        self._turns: list[Turn] = []
        self._first = 0
        # What is mounted, as removing takes its time.
        self._items: list[TurnView | Note] = []
        self._held: tuple[TurnView, int] | None = None

    def on_mount(self) -> None:
        self.anchor()
        self.screen.screen_layout_refresh_signal.subscribe(self, self._hold_still)

    # What is shown.

    @property
    def views(self) -> list[TurnView]:
        """Those that are mounted, the oldest first."""
        return [item for item in self._items if isinstance(item, TurnView)]

    def show(self, turns: Sequence[Turn]) -> None:
        """Have these in view; what is in view already stays."""
        same = _common(self._turns, turns)
        self._turns = [*turns]
        end_piece = self._fitting(len(turns), 2 * max(self.size.height, 20))
        with self.app.batch_update():
            if same < self._first or same < end_piece:
                self._remove(0, len(self._items))
                self._first = same = end_piece
            else:
                self._remove(self._place(same - self._first), len(self._items))
            self._append(map(self._make, turns[same:]))
        self._trim()

    def note(self, line: str, *, warning: bool = False) -> None:
        """Say something behind the last turn."""
        self._append([Note(line, warning=warning)])

    def follow(self) -> None:
        """Go to the end, and stay there."""
        self._held = None
        self.anchor()

    def clear(self) -> None:
        """Show nothing, not even notes."""
        self._turns, self._first, self._held = [], 0, None
        self._remove(0, len(self._items))

    def _append(self, items: Iterable[TurnView | Note]) -> None:
        new = [*items]
        self._items += new
        self.mount_all(new)

    def _remove(self, start: int, end: int) -> None:
        """Some of what is mounted, by places."""
        gone, self._items[start:end] = self._items[start:end], []
        self.remove_children(gone)

    def _place(self, number: int) -> int:
        """Where a mounted turn is; where it would be, if there are not so many."""
        views = self.views
        return self._items.index(views[number]) if number < len(views) else len(self._items)

    def _fitting(self, end: int, rows: int) -> int:
        """The first of the turns before this one that together take so many rows; one at least."""
        first = end
        while first > 0 and rows > 0:
            first -= 1
            rows -= self._rows(self._turns[first])
        return first

    def _rows(self, turn: Turn) -> int:
        """How many rows it takes, roughly."""
        width = max(20, self.size.width - 4)
        return 2 + sum(1 + len(line) // width for line in turn.content.split("\n"))

    # Looking back.

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        at_end = new_value >= self.max_scroll_y
        self._held = None if at_end else self._at_top(int(new_value))
        if new_value < old_value and new_value < self.size.height and self._first:
            self.call_next(self._mount_older)

    def _at_top(self, row: int) -> tuple[TurnView, int] | None:
        """The turn at the upper edge, and how many of its rows are above that."""
        for view in self.views:
            region = view.virtual_region
            if region.bottom > row:
                return view, row - region.y
        return None

    def _mount_older(self) -> None:
        """A screen or two more of what came before."""
        end, self._first = self._first, self._fitting(self._first, 2 * self.size.height)
        older = [self._make(turn) for turn in self._turns[self._first : end]]
        if older:
            self.mount_all(older, before=self._items[0])
            self._items[:0] = older

    def _hold_still(self, _screen: Screen[object]) -> None:
        """Keep in place what is looked at, whatever happens above it."""
        if self._held and self._held[0].is_mounted:
            view, above = self._held
            row = view.virtual_region.y + above
            if row != round(self.scroll_y):
                held = self._held
                self.scroll_to(y=row, animate=False, force=True, immediate=True)
                self._held = held

    def _trim(self) -> None:
        """Take away the oldest turns while the end is looked at."""
        if self._held or self.virtual_size.height <= _MOST_ROWS:
            return
        first = self._fitting(len(self._turns), _KEPT_ROWS)
        if first > self._first:
            self._remove(0, self._place(first - self._first))
            self._first = first

    # The message that is meant.

    @property
    def chosen(self) -> TurnView | None:
        """The one that has the focus."""
        focused = self.screen.focused
        nodes = focused.ancestors_with_self if focused else []
        return next((node for node in nodes if isinstance(node, TurnView)), None)

    def focus_on(self, turn: Turn) -> None:
        """Give this message the focus, if it is mounted."""
        for view in self.views:
            if view.turn is turn:
                self.call_after_refresh(view.focus)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key does anything with that message."""
        if not (chosen := self.chosen):
            return True
        match action:
            case "edit":
                return chosen.turn.role == "user"
            case "vary":
                return chosen.has_variants
            case "copy_code":
                return last_code(chosen.turn.content) is not None
        return True

    def action_go(self, by: int) -> None:
        """To the next message, or the one before."""
        chosen, views = self.chosen, self.views
        at = views.index(chosen) + by if chosen else len(views) - 1
        if at >= len(views):
            self.post_message(self.Left())
        elif at >= 0:
            views[at].focus()
        elif self._first:
            self._mount_older()
            self.call_after_refresh(self.action_go, by)

    def action_vary(self, by: int) -> None:
        """Another variant of the message."""
        if meant := self._meant:
            self.post_message(self.Varied(meant.turn, by))

    def action_edit(self) -> None:
        """Ask it otherwise."""
        asked = (
            [turn for turn in self._meant.turn.path if turn.role == "user"] if self._meant else []
        )
        if asked:
            self.post_message(self.Edited(asked[-1]))

    def action_copy(self) -> None:
        """Copy what it says."""
        if meant := self._meant:
            self.post_message(self.Copied(meant.turn, code=False))

    def action_copy_code(self) -> None:
        """Copy its last block of code."""
        if meant := self._meant:
            self.post_message(self.Copied(meant.turn, code=True))

    @property
    def _meant(self) -> TurnView | None:
        """The message that has the focus, else the last one."""
        return self.chosen or (self.views[-1] if self._turns else None)


def _common(old: Sequence[Turn], new: Sequence[Turn]) -> int:
    """How many of the first turns are the same."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (a, b) in pairs if a is not b), min(len(old), len(new)))
