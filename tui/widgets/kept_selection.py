"""Kept selection: what is selected with the mouse, also where it is not mounted any more."""

from collections.abc import Mapping
from typing import Generic, TypeVar

from textual.selection import Selection
from textual.widget import Widget

_Entry = TypeVar("_Entry")


class KeptSelection(Generic[_Entry]):
    """Textual knows of the widgets that are mounted. This keeps what it forgets of the others.

    text: all that is selected, once a part of it was unmounted; empty else. is_dragged: whether the
    user is selecting; Textual needs all widgets then.
    """

    def __init__(self, owner: Widget) -> None:
        self.text = ""
        self.is_dragged = False
        self._owner = owner
        # By the number of the widget among those of the entry's view.
        self._unmounted: dict[_Entry, dict[int, Selection]] = {}
        self._own: Mapping[Widget, Selection] | None = None

    def watch(self) -> None:
        """Take note of each new selection from now on. Call it once the owner is mounted."""
        self._owner.watch(self._owner.screen, "selections", self._changed, init=False)

    def _changed(self, selections: Mapping[Widget, Selection]) -> None:
        # What `restore` sets comes here too, and is no new selection.
        if selections is not self._own:
            self.forget()

    def forget(self) -> None:
        """Keep nothing of what is not mounted."""
        self.text = ""
        self._unmounted.clear()

    def keep(self, views: Mapping[_Entry, Widget]) -> None:
        """Keep what is selected in views that will be unmounted now."""
        for entry, view in views.items():
            if found := self._selected(view):
                self.text = self.text or self._owner.screen.get_selected_text() or ""
                self._unmounted[entry] = found

    def includes(self, entry: _Entry, view: Widget | None) -> bool:
        """Whether something of an entry is selected. view: None where it is not mounted."""
        return entry in self._unmounted or bool(view and self._selected(view))

    def _selected(self, view: Widget) -> dict[int, Selection]:
        selected, widgets = self._owner.screen.selections, enumerate(view.walk_children(Widget))
        return {number: selected[each] for number, each in widgets if each in selected}

    def restore(self, views: Mapping[_Entry, Widget]) -> None:
        """Select what was kept of these views, which are mounted again and laid out."""
        again: dict[Widget, Selection] = {}
        for entry in self._unmounted.keys() & views.keys():
            widgets, kept = [*views[entry].walk_children(Widget)], self._unmounted.pop(entry)
            again |= {widgets[at]: kept[at] for at in kept if at < len(widgets)}
        if again:
            screen = self._owner.screen
            mounted = {each: span for each, span in screen.selections.items() if each.is_attached}
            self._own = screen.selections = mounted | again
