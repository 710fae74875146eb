"""Entry window: a long list of which only entries near the visible rows are mounted."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.screen import Screen
from textual.scrollbar import ScrollTo
from textual.widget import Widget

from localspec_tui.widgets.entry_heights import EntryHeights
from localspec_tui.widgets.kept_selection import KeptSelection
from localspec_tui.widgets.single_layout import SingleLayout
from localspec_tui.widgets.whole_scrollbar import WholeScrollBar

# Rows above and below the visible ones from which on entries are unmounted, at least.
_KEPT_ROWS = 750


class Entry(Protocol):
    """What is shown by a view while it is mounted."""

    @property
    def text(self) -> str:
        """A text that fills about as many rows as the view."""

    def make_view(self) -> Widget:
        """Make a view, which shows all changes from now on."""

    def drop_view(self) -> None:
        """The view is unmounted."""


class EntryWindow(VerticalScroll, SingleLayout, can_focus=False):
    """Follows its end until the user scrolls up.

    Its scrollbar is that of all entries, with the heights of those that are not mounted as they
    were, or estimated.

    entries: all of them, from the first row to the last. selection: of the mouse.
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.entries: list[Entry] = []
        # Those of the window are mounted: from the one index up to the other.
        self._first = self._end = 0
        self._views: dict[Entry, Widget] = {}
        self._heights = EntryHeights[Entry]()
        self.selection = KeptSelection[Entry](self)
        # While the user has scrolled up: the entry at the upper edge, and how many of its rows are
        # above the edge. It is mounted. If there is none, the last entry is mounted.
        self._pinned: tuple[Entry, float] | None = None
        # Whether what is scrolled now is scrolled by no user.
        self._holds_pin = False
        # Whether what was mounted or unmounted last is not all laid out.
        self._is_settling = False

    def on_mount(self) -> None:
        self.anchor()
        self.selection.watch()
        self.screen.screen_layout_refresh_signal.subscribe(self, self._after_layout)

    def focus_unmounted(self) -> None:
        """An entry that had the focus was unmounted; nothing has the focus now."""

    @property
    def views(self) -> Sequence[Widget]:
        """The views that are mounted."""
        return [*self._views.values()]

    def follow_end(self) -> None:
        """Scroll to the end, and stay there while it grows."""
        self._pinned = None
        if self._end < len(self.entries):
            self._set_window(self._first_of_end(), len(self.entries))
        self.anchor()

    def pin(self, entry: Entry, row: float) -> None:
        """Have a row of an entry at the upper edge, and mount what is near."""
        at, height = self.entries.index(entry), self.size.height
        first, end = self._first_within(at, height), self._end_within(at, 2 * height)
        if first < self._first or end > self._end:
            self._set_window(first, end)
        self.release_anchor()
        self._pinned = entry, row
        self.refresh(layout=True)

    def action_scroll_home(self) -> None:
        """Scroll to the first entry."""
        if self._first:
            self.pin(self.entries[0], 0)
        else:
            self.scroll_home(animate=False)

    def action_scroll_end(self) -> None:
        """Scroll to the end, and follow it again."""
        self.follow_end()

    def replace_from(self, at: int, entries: Iterable[Entry]) -> None:
        """Put entries in place of those from an index on."""
        before, self.entries[at:] = self.entries[at:], entries
        self._heights.forget(before)
        if any(self.selection.includes(entry, self._views.get(entry)) for entry in before):
            self.selection.forget()
        if self._pinned and self._pinned[0] in before:
            # What takes its place, such as another variant, is shown in its place.
            is_next = self._pinned[0] is before[0]
            successor = self.entries[at] if at < len(self.entries) else None
            self._pinned = (successor, self._pinned[1] if is_next else 0) if successor else None
            if not successor:
                self.anchor()
        self._mount_after(at)

    def _mount_after(self, at: int) -> None:
        """Mount what should be mounted, after the entries from an index on have changed."""
        end = len(self.entries)
        if self._pinned:
            pinned = self.entries.index(self._pinned[0])
            first = min(self._first, self._first_within(pinned, self.size.height))
            self._set_window(first, max(min(self._end, end), self._end_within(pinned)))
        elif at <= self._first:
            self._set_window(self._first_of_end(), end)
        else:
            self._set_window(max(self._first, self._first_within(end, self._kept_rows)), end)

    # The window.

    def _set_window(self, first: int, end: int) -> None:
        """Mount the entries from one index up to another, and unmount all others.

        Nothing else mounts or unmounts an entry.
        """
        window = self.entries[first:end]
        self._first, self._end = first, first + len(window)
        if window == [*self._views]:
            return
        self._is_settling = self.vertical_scrollbar.is_held = True
        stay = [entry for entry in window if entry in self._views]
        start = window.index(stay[0]) if stay else 0
        with self.app.batch_update():
            self._unmount_entries(self._views.keys() - stay)
            before = self._mount_entries(
                window[:start], before=self._views[stay[0]] if stay else None
            )
            after = self._mount_entries(window[start + len(stay) :])
        self._views = {**before, **self._views, **after}

    def _mount_entries(
        self, entries: Sequence[Entry], before: Widget | None = None
    ) -> dict[Entry, Widget]:
        views = {entry: entry.make_view() for entry in entries}
        if views:
            self.mount_all(views.values(), before=before)
        return views

    def _unmount_entries(self, entries: Iterable[Entry]) -> None:
        gone = {entry: self._views.pop(entry) for entry in entries}
        if self.screen.selections:
            stay = {*self.entries}
            self.selection.keep({each: view for each, view in gone.items() if each in stay})
        for entry, view in gone.items():
            if rows := view.outer_size.height:
                self._heights.keep(entry, rows)
        focused = self.screen.focused
        with_focus = {*focused.ancestors_with_self} if focused else set()
        if any(view in with_focus for entry, view in gone.items() if entry in self.entries):
            # Its keys must not go to another entry.
            self.screen.set_focus(None)
            self.focus_unmounted()
        for entry in gone:
            entry.drop_view()
        self.remove_children(gone.values())

    def _mount_near(self, above: int = 1, below: int = 1) -> None:
        """Mount more where fewer rows than these are above or below the visible ones.

        What is far is unmounted then.
        """
        height, (first, end) = self.size.height, (self._first, self._end)
        is_above = first > 0 and self.scroll_y < above
        is_below = end < len(self.entries) and self.max_scroll_y - self.scroll_y < below
        if not (is_above or is_below) or not self._is_laid_out:
            return
        if is_above:
            first = self._first_within(first, 2 * height)
        if is_below:
            end = self._end_within(end, 2 * height)
        self._set_window(*self._without_far(first, end))

    def _without_far(self, first: int, end: int) -> tuple[int, int]:
        """What of a window is near what is in sight, or is needed to select."""
        if self._pinned and not self.selection.is_dragged:
            at = self.entries.index(self._pinned[0])
            first = max(first, self._first_within(at, self._kept_rows))
            end = min(end, self._end_within(at, self._kept_rows))
        return first, end

    @property
    def _is_laid_out(self) -> bool:
        return all(view.outer_size.height for view in self._views.values())

    @property
    def _kept_rows(self) -> int:
        """Rows, above and below the visible ones, that stay mounted."""
        return max(_KEPT_ROWS, 4 * self.size.height)

    def _first_of_end(self) -> int:
        """Index of the first entry to be mounted where the last is in sight."""
        return self._first_within(len(self.entries), 2 * max(self.size.height, 20))

    def _first_within(self, end: int, rows: int) -> int:
        """Index of an entry, so that those from it up to `end` fill about so many rows."""
        first = end
        while first > 0 and rows > 0:
            first -= 1
            rows -= self._rows(self.entries[first])
        return first

    def _end_within(self, first: int, rows: int | None = None) -> int:
        """Index behind an entry, so that those from `first` up to it fill about so many rows."""
        rows = self._kept_rows if rows is None else rows
        end = first
        while end < len(self.entries) and rows > 0:
            rows -= self._rows(self.entries[end])
            end += 1
        return end

    def _rows(self, entry: Entry) -> int:
        """The rows of an entry; of one that is not laid out, about so many."""
        return self._laid_out_rows(entry) or self._heights.of(entry)

    def _laid_out_rows(self, entry: Entry) -> int:
        """The rows of an entry that is mounted; 0 as long as it is not laid out."""
        return self._views[entry].outer_size.height if entry in self._views else 0

    def on_mouse_down(self) -> None:
        self.selection.is_dragged = True

    def end_drag(self) -> None:
        """Unmount what was needed only while the user selected something."""
        self.selection.is_dragged = False
        self._set_window(*self._without_far(self._first, self._end))

    # Scrolling.

    def _scroll_update(self, virtual_size: Size) -> None:
        """Have the scrollbar drawn together with the text, instead of a frame later."""
        # Textual scrolls back where entries are gone, until others are laid out.
        self._holds_pin = self._is_settling
        super()._scroll_update(virtual_size)
        self._holds_pin = False
        if self.show_vertical_scrollbar:
            self._show_place()
            self.screen._compositor.update_widgets({self.vertical_scrollbar})

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        # Textual's layout scrolls above the first row for a moment where all just fitted.
        if not self._holds_pin and old_value >= 0:
            self._pin_what_is_at(new_value)
        super().watch_scroll_y(old_value, new_value)
        height = self.size.height
        near = (height, 1) if new_value < old_value else (1, height)
        self.call_next(self._mount_near, *near)

    @property
    def vertical_scrollbar(self) -> WholeScrollBar:
        """The scrollbar, which is made where it is needed first."""
        if not isinstance(self._vertical_scrollbar, WholeScrollBar):
            self._vertical_scrollbar = WholeScrollBar(name="vertical")
            self._vertical_scrollbar.display = False
            self.app._start_widget(self, self._vertical_scrollbar)
        return self._vertical_scrollbar

    def _show_place(self) -> None:
        """Have the scrollbar show where the visible rows are among those of all entries."""
        bar = self.vertical_scrollbar
        if not self._is_settling:
            self._heights.at_width(self.size.width)
            above = sum(map(self._heights.of, self.entries[: self._first]))
            below = sum(map(self._heights.of, self.entries[self._end :]))
            bar.show_part(self.virtual_size.height, above, below)
        bar.position = self.scroll_y

    def _on_scroll_to(self, message: ScrollTo) -> None:
        """Scroll to where the scrollbar was dragged, which may be a row that is not mounted."""
        message.stop()
        message.prevent_default()
        row = (message.y or 0) - self.vertical_scrollbar.above
        is_below_top = row >= 0 or not self._first
        is_above_end = row <= self.max_scroll_y or self._end == len(self.entries)
        if is_below_top and is_above_end:
            self.scroll_to(y=row, animate=False)
            return
        row = max(0, message.y or 0)
        for entry in self.entries:
            if row < self._rows(entry):
                self.pin(entry, row)
                return
            row -= self._rows(entry)
        self.follow_end()

    def _check_anchor(self) -> None:
        """Follow the end only from there."""
        if not self._pinned:
            super()._check_anchor()

    def _pin_what_is_at(self, row: float) -> None:
        if self._pinned and not self._laid_out_rows(self._pinned[0]):
            # It is mounted and not laid out yet: the view is on its way there.
            return
        if row >= self.max_scroll_y and self._end == len(self.entries):
            self._pinned = None
            return
        for entry, view in self._views.items():
            region = view.virtual_region
            if region.bottom > row:
                self._pinned = entry, row - region.y
                return

    def _after_layout(self, _screen: Screen[object]) -> None:
        self._restore_scroll()
        if self._is_settling:
            self._is_settling = len(self.children) > len(self._views) or not self._is_laid_out
        self._show_place()
        if self._is_laid_out:
            self.selection.restore(self._views)
        self._mount_near()

    def _restore_scroll(self) -> None:
        """Keep the visible rows in place when the height of the rows above them changes."""
        entry, above = self._pinned or (None, 0)
        if not entry or not self._laid_out_rows(entry):
            return
        row = self._views[entry].virtual_region.y + above
        if row == self.scroll_y:
            return
        is_moving = self.app.animator.is_being_animated(self, "scroll_y")
        target = self.scroll_target_y + row - self.scroll_y
        self._holds_pin = True
        self.scroll_to(y=row, animate=False, force=True, immediate=True)
        self._holds_pin = False
        if is_moving:
            self.scroll_to(y=target, immediate=True)
