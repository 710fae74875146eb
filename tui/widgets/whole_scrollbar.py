"""Whole scrollbar: that of a list of which only a part is mounted."""

from textual.scrollbar import ScrollBar


class WholeScrollBar(ScrollBar):
    """Textual gives it the size of the part, and the position in the part.

    above, below: the rows that are not mounted. They are held until the next `show_part` while
    what is mounted changes.
    """

    above = below = 0
    is_held = False
    _place = 0.0

    def show_part(self, height: int, above: int, below: int) -> None:
        """Show a part of some height, with rows above and below it."""
        self.is_held = False
        self.above, self.below = above, below
        self.window_virtual_size = height

    def validate_window_virtual_size(self, height: int) -> int:
        """The height of the whole, of that of the part."""
        return self.window_virtual_size if self.is_held else self.above + height + self.below

    @property
    def _reactive_position(self) -> float:
        """Where Textual keeps the position. While the end of a list is followed, whatever asks for
        a region writes that in the part here, past `validate_position`.
        """
        return self._place

    @_reactive_position.setter
    def _reactive_position(self, position: float) -> None:
        if position != self._place:
            self.validate_position(position)

    def validate_position(self, position: float) -> float:
        """The position in the whole, of that in the part."""
        if not self.is_held:
            self._place = super().validate_position(self.above + position)
        return self._place
