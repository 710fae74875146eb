"""Key bar: the keys that work now, in the last row; the most needed ones where it is narrow."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import ClassVar, NamedTuple

from rich.cells import cell_len
from textual import events
from textual.binding import ActiveBinding
from textual.content import Content
from textual.reactive import reactive
from textual.screen import Screen
from textual.style import Style
from textual.widget import Widget

# Shown first; then the command palette, then the others in their order.
_MOST_NEEDED = ("enter", "escape", "f1")


class _Part(NamedTuple):
    """A text of the row. style: a component class. pressed: the key that a click presses."""

    text: str
    style: str = "key-bar--label"
    pressed: ActiveBinding | None = None


class KeyBar(Widget):
    """Shows whole keys only: those that do not fit are left out, and F1 lists them.

    One row of text: Textual's own bar takes 20 ms for other keys, with a widget for each.

    hovered: the key under the mouse.
    """

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "key-bar--key",
        "key-bar--label",
        "key-bar--edge",
        "key-bar--hovered",
    }
    DEFAULT_CSS = """
    KeyBar {
        dock: bottom;
        height: 1;
        text-wrap: nowrap;
        text-overflow: clip;
        color: $footer-foreground;
        background: $footer-background;
        & > .key-bar--key { color: $footer-key-foreground; text-style: bold; }
        & > .key-bar--label { color: $footer-description-foreground; }
        & > .key-bar--edge { color: $foreground 20%; }
        & > .key-bar--hovered { background: $block-hover-background; }
    }
    """

    hovered: reactive[ActiveBinding | None] = reactive(None)

    def __init__(self) -> None:
        super().__init__()
        self._active: list[ActiveBinding] = []

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._show_active)

    def _show_active(self, screen: Screen[object]) -> None:
        active = [*screen.active_bindings.values()]
        # While the terminal has no focus, no widget has it, and fewer keys work.
        if self.app.app_focus and active != self._active:
            self._active = active
            self.refresh()

    def render(self) -> Content:
        return Content.assemble(*((part.text, self._style(part)) for part in self._row()))

    def _style(self, part: _Part) -> Style:
        is_hovered = part.pressed is not None and part.pressed == self.hovered
        return self.get_visual_style(part.style, *["key-bar--hovered"] * is_hovered)

    def _row(self) -> Sequence[_Part]:
        """What fits of the keys, with the command palette at the right."""
        items, left = [*self._items()], self.size.width
        fitting = []
        for item in sorted(items, key=_rank):
            needed = sum(cell_len(part.text) for part in item)
            if needed <= left:
                fitting.append(item)
                left -= needed
        row = [part for item in items if item in fitting for part in item]
        edge = next((at for at, part in enumerate(row) if part.style == "key-bar--edge"), len(row))
        return [*row[:edge], _Part(" " * left), *row[edge:]]

    def _items(self) -> Iterator[Sequence[_Part]]:
        """Yield what is shown or left out as a whole: a key, or a group of keys with its name."""
        by_action: dict[str, ActiveBinding] = {}
        for each in self._active:
            if each.binding.show:
                by_action.setdefault(each.binding.action, each)
        by_group = groupby(by_action.values(), lambda each: each.binding.group or each)
        for keys in ([*keys] for _, keys in by_group):
            if len(keys) > 1 and (group := keys[0].binding.group):
                yield [_Part(" "), *map(self._key, keys), _Part(f" {group.description} ")]
            else:
                yield self._with_label(" ", keys[0])
        for each in self._active:
            if each.binding.key == self.app.COMMAND_PALETTE_BINDING:
                yield [_Part("▏", "key-bar--edge"), *self._with_label("", each)]

    def _with_label(self, before: str, active: ActiveBinding) -> Sequence[_Part]:
        label = f" {active.binding.description} "
        return [_Part(before), self._key(active), _Part(label, pressed=active)]

    def _key(self, active: ActiveBinding) -> _Part:
        return _Part(self.app.get_key_display(active.binding), "key-bar--key", active)

    def _at(self, column: int) -> ActiveBinding | None:
        """The key in a column of the row."""
        for part in self._row():
            if column < (width := cell_len(part.text)):
                return part.pressed
            column -= width
        return None

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Press the key."""
        if pressed := self._at(event.x):
            self.app.simulate_key(pressed.binding.key)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Show which key it is, and what it does."""
        self.hovered = self._at(event.x)
        self.tooltip = self.hovered and (self.hovered.tooltip or self.hovered.binding.description)

    def on_leave(self) -> None:
        """Show no key any more."""
        self.hovered = None


def _rank(item: Sequence[_Part]) -> int:
    key = next(part.pressed.binding.key for part in item if part.pressed)
    if key in _MOST_NEEDED:
        return _MOST_NEEDED.index(key)
    return len(_MOST_NEEDED) + (item[0].style != "key-bar--edge")
