"""Single layout: for widgets that change their size often."""

from textual.geometry import Size
from textual.reactive import Reactive
from textual.widget import Widget


class SingleLayout(Widget):
    """A change of size does not cause a second layout, as it does for other widgets.

    Nor does it render again what was rendered before, as long as the width stays. Only for widgets
    without a border at the bottom, whose content does not depend on the size that the layout gave
    them.
    """

    virtual_size = Reactive(Size(0, 0), repaint=False)

    def _size_updated(
        self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True
    ) -> bool:
        """Keep the rows that are rendered already while the width stays."""
        if size.width == self._size.width:
            self._size = size
        return super()._size_updated(size, virtual_size, container_size, layout)
