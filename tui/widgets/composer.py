"""Composer: the text box in which the user writes messages."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea

_PLACEHOLDER = "Write a message"

# Takes a line up to the cursor, and returns text that completes it, or an empty text.
Complete = Callable[[str], str]


class Composer(TextArea):
    """Enter sends the message; Tab accepts the suggestion, which is shown in grey.

    complete: makes the suggestions.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "Send", priority=True),
        Binding("ctrl+j,shift+enter", "newline", "New line", priority=True, show=False),
        Binding("tab", "accept", "Take what is suggested", priority=True, show=False),
    ]

    @dataclass
    class Sent(Message):
        """The user sent a message."""

        text: str

    class Exited(Message):
        """The user moved the cursor up in an empty composer."""

    def __init__(self, complete: Complete, *, id: str | None = None) -> None:
        super().__init__(id=id, highlight_cursor_line=False, placeholder=_PLACEHOLDER)
        self._complete = complete
        self._first_message = ""

    def suggest_first_message(self, text: str) -> None:
        """Suggest a whole message while the composer is empty; Tab accepts it."""
        self._first_message = text
        self.placeholder = f"{text}   (Tab takes this)"

    def set_text(self, text: str) -> None:
        """Replace the text, put the cursor at its end, and focus the composer."""
        self.load_text(text)
        self.move_cursor(self.document.end)
        self.focus()

    def update_suggestion(self) -> None:
        """Suggest how the word at the cursor may go on."""
        row, column = self.cursor_location
        line = self.document.get_line(row)
        self.suggestion = self._complete(line) if column == len(line) else ""

    def action_send(self) -> None:
        """Send the message, if there is one."""
        if self.text.strip():
            self.post_message(self.Sent(self.text))
            self.load_text("")
            self._first_message, self.placeholder = "", _PLACEHOLDER

    def action_newline(self) -> None:
        """Insert a line break."""
        self.insert("\n")

    def action_accept(self) -> None:
        """Accept the suggestion. Without one, Tab moves the focus as usual."""
        if self.suggestion:
            self.insert(self.suggestion)
        elif self._first_message and not self.text:
            self.set_text(self._first_message)
        else:
            raise SkipAction

    def action_cursor_up(self, select: bool = False) -> None:
        """Move up by a line; in an empty composer, post Exited."""
        if self.text:
            super().action_cursor_up(select)
        else:
            self.post_message(self.Exited())
