"""Typed keys: keys and pastes wait for the key before them, where that may open a screen."""

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from textual import events
from textual.app import App
from textual.screen import Screen

if TYPE_CHECKING:
    from localspec_tui.app import ChatApp

# Seconds after which what was typed is handled although the key before it was not.
_PATIENCE = 1.0


class TypedKeys:
    """Everything waits until `release` is called first, once the chat is drawn.

    Textual gives a key to the widget that has the focus when the key arrives. Where the key before
    it opens a screen, that is a widget of the screen below, or none of the new one as yet.
    """

    def __init__(self, app: "ChatApp") -> None:
        self._app = app
        self._waiting: deque[events.Key | events.Paste] = deque()
        self._is_held = True
        # The key that the others wait for.
        self._key: events.Key | None = None

    def take(self, event: events.Key | events.Paste) -> bool:
        """Whether to handle an event now. If not, it is handled later."""
        if self._is_held:
            self._waiting.append(event)
            return False
        if isinstance(event, events.Key) and self._is_for_screen(event):
            self._is_held, self._key = True, event
            self._app.set_timer(_PATIENCE, partial(self.done, event))
        return True

    def done(self, key: events.Key) -> None:
        """Take note that the action of a key has run. What waits is handled once it has a focus."""
        if key is self._key:
            self._key = None
            self._app.screen.call_later(self._app.call_later, self.release)

    async def release(self) -> None:
        """Handle what waits, up to the next key that may open a screen."""
        self._is_held = False
        while self._waiting and not self._is_held:
            await self._app.on_event(self._waiting.popleft())

    def _is_for_screen(self, key: events.Key) -> bool:
        """Whether a key does something that is no widget's."""
        if key.is_printable:
            return False
        active = self._app.screen.active_bindings.get(key.key)
        return active is not None and isinstance(active.node, Screen | App)
