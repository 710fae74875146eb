"""Single layout: for widgets that change their size often."""

from textual.geometry import Size
from textual.reactive import Reactive
from textual.widget import Widget


class SingleLayout(Widget):
    """A change of size does not cause a second layout, as it does for other widgets.

    Only for widgets whose content does not depend on the size that the layout gave them.
    """

    virtual_size = Reactive(Size(0, 0))
