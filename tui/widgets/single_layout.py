"""Once laid: for widgets that are often another size."""

from textual.geometry import Size
from textual.reactive import Reactive
from textual.widget import Widget


class OnceLaid(Widget):
    """Where a layout gives it another size, no second layout follows, as it does for other widgets.

    For those in which nothing depends on how large they turned out to be.
    """

    virtual_size = Reactive(Size(0, 0))
