"""Dialog: a screen over the chat that is left once, however often and fast the user does that.

Textual leaves whatever screen is on top then: the one below, and at last the chat.
"""

from textual.await_complete import AwaitComplete
from textual.command import CommandPalette
from textual.screen import ModalScreen, ScreenResultType


class Dialog(ModalScreen[ScreenResultType]):
    """A screen over the chat."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Leave the screen with a result, unless it is left already."""
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()


class Palette(CommandPalette):
    """Textual's command palette."""

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Leave the palette, unless it is left already."""
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()
