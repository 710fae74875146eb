"""Typed keys: keys and pastes wait for the key before them, where that may open a screen."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from textual import events
from textual._time import time as clock  # that of events
from textual.app import App
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget

if TYPE_CHECKING:
    from localspec_tui.app import ChatApp

# Seconds after which what was typed is handled although the key before it was not.
_PATIENCE = 1.0
# Seconds from a key to an Enter below which Enter is part of a paste, and sends no message.
QUICK = 0.03
# Actions of widgets that may open a screen, or give the focus to another widget.
_LEADING = {"send", "submit", "leave"}


@dataclass
class KeyHandled(Message):
    """The action of a key has run. It reaches the app after all messages that the action posted."""

    key: events.Key


@dataclass
class KeyDue(Message):
    """The action of a key that waited runs now. handle: called with the key, later."""

    key: events.Key
    handle: Callable[[events.Key], object]


class OrderedKeys(Widget):
    """A widget whose keys act in the order in which they are pressed.

    Textual runs the actions of keys later: keys with priority overtake the letters typed before
    them, and letters overtake the other keys.
    """

    async def run_key(self, key: events.Key) -> None:
        """Run the action of a key, if it has one here, before the next key is handled."""
        for binding in self._bindings.key_to_bindings.get(key.key, ()):
            if await self.app.run_action(binding.action, self):
                self.end_key(key)
                return

    def end_key(self, key: events.Key) -> None:
        """Have nothing else handle a key, and keys behind it handled."""
        key.stop()
        key.prevent_default()
        self.post_message(KeyHandled(key))


def is_text(event: events.Key | events.Paste) -> bool:
    """Whether what was typed is a letter or a pasted text."""
    return isinstance(event, events.Paste) or event.is_printable


class TypedKeys:
    """Everything waits until `release` is called first, once the chat is drawn.

    Textual gives a key to the widget that has the focus when the key arrives. Where the key before
    it opens a screen, that is a widget of the screen below, or none of the new one as yet.
    """

    def __init__(self, app: "ChatApp") -> None:
        self._app = app
        self._waiting: deque[events.Key | events.Paste] = deque()
        self._is_held = True
        # When the last key that was handled was pressed, and the key that the others wait for.
        self._time = float("-inf")
        # When the last letter came, handled or not.
        self._letter_time = float("-inf")
        self._key: events.Key | None = None

    def take(self, event: events.Key | events.Paste) -> bool:
        """Whether to handle an event now. If not, it is handled later."""
        if is_text(event):
            self._letter_time = event.time
        if self._is_held:
            self._waiting.append(event)
            return False
        gap, self._time = event.time - self._time, event.time
        if isinstance(event, events.Key) and self._may_open_screen(event, gap):
            self.hold(event)
        return True

    @property
    def seconds_since_letter(self) -> float:
        """Seconds since a letter was typed, or a text pasted."""
        return clock() - self._letter_time

    def hold(self, key: events.Key) -> None:
        """Let everything wait until the action of a key has run, unless it waits already."""
        if not self._is_held:
            self._is_held, self._key = True, key
            self._app.set_timer(_PATIENCE, partial(self._release_behind, key))

    def done(self, key: events.Key) -> None:
        """Take note that the action of a key has run. What waits is handled once it has a focus."""
        if key is self._key:
            self._app.screen.call_later(self._app.call_later, self._release_behind, key)

    async def _release_behind(self, key: events.Key) -> None:
        if key is self._key:
            await self.release()

    async def release(self) -> None:
        """Handle what waits, up to the next key that may open a screen."""
        self._is_held, self._key = False, None
        while self._waiting and not self._is_held:
            await self._app.on_event(self._waiting.popleft())

    def _may_open_screen(self, key: events.Key, gap: float) -> bool:
        """gap: seconds since the key before it."""
        if key.is_printable:
            return False
        active = self._app.screen.active_bindings.get(key.key)
        if active is None or isinstance(active.node, Screen | App):
            return active is not None
        action = active.binding.action
        is_pasted = action == "send" and gap < QUICK
        return isinstance(active.node, OrderedKeys) and action in _LEADING and not is_pasted
