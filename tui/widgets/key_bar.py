"""Key bar: the keys that work now, in the last row; the most needed ones where it is narrow."""

from collections.abc import Iterator

from textual.widget import Widget
from textual.widgets import Footer
from textual.widgets._footer import FooterKey, KeyGroup

# Shown first; then the command palette, then the others in their order.
_MOST_NEEDED = ("enter", "escape", "f1")


class KeyBar(Footer):
    """Shows whole keys only: those that do not fit are left out, and F1 lists them."""

    async def recompose(self) -> None:
        """Show the keys that work now."""
        async with self.batch():
            await super().recompose()
            self._fit()

    def on_resize(self) -> None:
        """Leave out what does not fit any more."""
        self._fit()

    def _fit(self) -> None:
        left = self.size.width
        for item in sorted(self._items(), key=_rank):
            needed = sum(map(self._width, item))
            for widget in item:
                widget.display = needed <= left
            left -= needed if needed <= left else 0

    def _items(self) -> Iterator[list[Widget]]:
        """Yield what is shown or left out as a whole: a key, or a group of keys with its name."""
        widgets = iter(self.children)
        for widget in widgets:
            yield [widget, next(widgets)] if isinstance(widget, KeyGroup) else [widget]

    def _width(self, widget: Widget) -> int:
        content = widget.get_content_width(self.size, self.app.size)
        return content + widget.gutter.width + widget.styles.margin.width


def _rank(item: list[Widget]) -> int:
    key = item[0]
    if not isinstance(key, FooterKey):
        return len(_MOST_NEEDED) + 1
    if key.key in _MOST_NEEDED:
        return _MOST_NEEDED.index(key.key)
    return len(_MOST_NEEDED) + (not key.has_class("-command-palette"))
