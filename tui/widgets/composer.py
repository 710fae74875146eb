"""Composer: the text box in which the user writes messages."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import ClassVar, cast

from textual import events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.document._document import EditResult, Location
from textual.document._edit import Edit
from textual.message import Message
from textual.widgets import TextArea

from localspec_tui.folded_lines import FoldedLines
from localspec_tui.message_history import MessageHistory
from localspec_tui.typed_keys import QUICK, KeyDue, OrderedKeys

_PLACEHOLDER = "Write a message (Ctrl-J: new line)"
# Seconds between keys below which they are those of a paste: from a key to an Enter, from an Enter
# to a key, and both once an Enter was part of one. Where no core is idle, keys of a paste take as
# long as that.
_BEFORE_ENTER, _AFTER_ENTER, _IN_PASTE = QUICK, 0.05, 0.2


class _Key(Enum):
    """Keys that Textual has no name for."""

    ALT_ENTER = "alt+enter"


# Textual takes it for Enter in terminals without the protocol of Kitty.
cast("dict[str, object]", ANSI_SEQUENCES_KEYS)["\x1b\r"] = (_Key.ALT_ENTER,)

# Takes a line up to the cursor, and returns text that completes it, or an empty text.
Complete = Callable[[str], str]
# Says why a text should not be sent as it is, or returns None.
Object = Callable[[str], str | None]
# Takes what was pasted, and returns what attaches the files that it names, or None.
Attach = Callable[[str], str | None]
# Takes back the message that was sent last and still waits, or returns None.
TakeBack = Callable[[], str | None]


class Composer(TextArea, OrderedKeys):
    """Enter sends the message; Tab accepts the suggestion, which is shown in grey.

    A terminal without bracketed paste sends a paste as keys: an Enter among them is a line break,
    and one at their end sends the message.

    complete: makes the suggestions. complete_quoted: where there is none, what Tab puts in place of
    the last word after an @. object_to: a text that it objects to is sent by the second Enter.
    attach: makes attachments of pasted paths. take_back, history: what Up brings back.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "Send"),
        Binding(
            "ctrl+j,shift+enter,alt+enter",
            "newline",
            "New line",
            tooltip="as a backslash and Enter do",
            show=False,
        ),
        Binding("tab", "accept", "Accept the suggestion", show=False),
        Binding("up", "cursor_up", "Up", tooltip="earlier messages, in an empty box", show=False),
        Binding(
            "down", "cursor_down", "Down", tooltip="later messages, in an empty box", show=False
        ),
        Binding(
            "shift+tab,ctrl+up", "leave", "Messages", tooltip="go to the last message", show=False
        ),
        Binding("ctrl+x", "cut", "Cut", tooltip="then ctrl+e opens your editor", show=False),
        Binding("f4", "editor", "Editor", tooltip="edit the text in $EDITOR", show=False),
        Binding("ctrl+d", "delete_or_quit", "Quit", tooltip="in an empty box", show=False),
        Binding(
            "ctrl+z", "undo_or_suspend", "Undo", tooltip="in an empty box, suspend", show=False
        ),
    ]

    @dataclass
    class Sent(Message):
        """The user sent a message."""

        text: str

    @dataclass
    class Objected(Message):
        """The text was not sent. problem: why; a line."""

        problem: str

    class SentNothing(Message):
        """The user pressed Enter in an empty composer."""

    class EditorRequested(Message):
        """The user wants to write the message in an editor."""

    class Exited(Message):
        """The user wants to go to the messages above."""

    def __init__(
        self,
        complete: Complete,
        object_to: Object,
        attach: Attach,
        take_back: TakeBack,
        history: MessageHistory,
        *,
        complete_quoted: Complete,
        id: str | None = None,
    ) -> None:
        self._folded = FoldedLines()
        super().__init__(id=id, highlight_cursor_line=False, placeholder=_PLACEHOLDER)
        self._complete, self._complete_quoted = complete, complete_quoted
        self._object_to, self._attachments = object_to, attach
        self._take_back, self._history = take_back, history
        # The text that was objected to last.
        self._questioned = ""
        # The text that `history` gave last, and whether the last key was ctrl+x.
        self._recalled = ""
        self._after_ctrl_x = False
        self._first_message = ""
        # When the last key was pressed, whether it was part of a paste of several lines, and an
        # Enter that waits for what follows.
        self._key_time, self._in_paste = float("-inf"), False
        self._waiting_enter: events.Key | None = None

    async def _on_key(self, event: events.Key) -> None:
        if self._take_pasted(event):
            self.end_key(event)
            return
        after_ctrl_x, self._after_ctrl_x = self._after_ctrl_x, event.key == "ctrl+x"
        if after_ctrl_x and event.key == "ctrl+e":
            self.action_editor()
            self.end_key(event)
            return
        await self.run_key(event)

    async def _on_paste(self, event: events.Paste) -> None:
        """Attach the files whose paths are pasted, as when they are dropped here."""
        attachments = self._attachments(event.text)
        if attachments is None:
            return
        event.stop()
        event.prevent_default()
        start = min(self.selection)
        end = self.replace(event.text, *self.selection).end_location
        # Undoing brings the path back as it was pasted.
        self.history.checkpoint()
        before = self.document.get_line(start[0])[: start[1]]
        if before.endswith("@"):
            attachments = attachments[1:]
        elif before and not before[-1].isspace() and before[-1] not in "([{":
            attachments = f" {attachments}"
        self.move_cursor(self.replace(f"{attachments} ", start, end).end_location)

    def _take_pasted(self, event: events.Key) -> bool:
        """Handle a key that is part of a paste and not text by itself; return whether it was."""
        gap = event.time - self._key_time
        self._key_time, self._in_paste = event.time, self._in_paste and gap < _IN_PASTE
        is_quick = gap < (_IN_PASTE if self._in_paste else _BEFORE_ENTER)
        wait = _IN_PASTE if self._in_paste else _AFTER_ENTER
        if self._waiting_enter and gap < wait and _is_text(event):
            self._waiting_enter, self._in_paste = None, True
            self.action_newline()
        self.send_waiting()
        if event.key == "enter" and is_quick:
            self._waiting_enter = event
            # Keys that have arrived come by the app, before this.
            due = KeyDue(event, partial(self.call_later, self._send_due))
            self.set_timer(
                _IN_PASTE if self._in_paste else wait, partial(self.app.post_message, due)
            )
            return True
        if event.key == "tab" and is_quick and not self.suggestion:
            self.insert("\t")
            return True
        return False

    def send_waiting(self) -> None:
        """Send the message if its Enter waits."""
        if self._waiting_enter:
            self._waiting_enter = None
            self.action_send()

    def _send_due(self, enter: events.Key) -> None:
        if enter is self._waiting_enter:
            self.send_waiting()
        self.end_key(enter)

    def _tell(self, message: Message) -> None:
        """Give a message to the screen before any key that is waiting here."""
        self.screen.post_message(message)

    def suggest_first_message(self, text: str) -> None:
        """Suggest a whole message while the composer is empty; Tab accepts it. Empty: none."""
        self._first_message = text
        self.placeholder = f"{text}   (Tab takes this)" if text else _PLACEHOLDER

    # Very long lines are folded in the document, and nowhere else.

    @property
    def text(self) -> str:
        """The whole text."""
        return self._folded.unfold(super().text)

    @text.setter
    def text(self, value: str) -> None:
        self.load_text(value)

    def load_text(self, text: str) -> None:
        """Replace the text, which cannot be undone."""
        self._folded = FoldedLines()
        super().load_text(self._folded.fold(text))

    def get_text_range(self, start: Location, end: Location) -> str:
        """The text between two places."""
        return self._folded.unfold(super().get_text_range(*self._outside_labels(start, end)))

    def edit(self, edit: Edit) -> EditResult:
        """Make a change of the text, which can be undone."""
        edit.from_location, edit.to_location = self._outside_labels(edit.top, edit.bottom)
        edit.text = self._folded.fold(edit.text)
        return super().edit(edit)

    def _outside_labels(self, start: Location, end: Location) -> tuple[Location, Location]:
        """Two places with all of the labels of folded lines that are partly between them."""
        (top, left), (bottom, right) = sorted((start, end))
        lines = self.document
        if top == bottom:
            left, right = self._folded.outside(lines.get_line(top), left, right)
        else:
            left, _ = self._folded.outside(lines.get_line(top), left, len(lines.get_line(top)))
            if bottom < lines.line_count:  # deleting the last line goes on to the one behind it
                _, right = self._folded.outside(lines.get_line(bottom), 0, right)
        return (top, left), (bottom, right)

    def put(self, text: str) -> None:
        """Replace the text, and put the cursor at its end."""
        self.load_text(text)
        self.move_cursor(self.document.end)

    def set_text(self, text: str) -> None:
        """Replace the text, put the cursor at its end, and focus the composer."""
        self.put(text)
        self.focus()

    def update_suggestion(self) -> None:
        """Suggest how the word at the cursor may go on."""
        row, column = self.cursor_location
        line = self.document.get_line(row)
        self.suggestion = self._complete(line) if column == len(line) else ""

    def action_send(self) -> None:
        """Send the message, if there is one; one that is objected to, the second time."""
        if self._ends_in_backslash:
            self._continue_line()
            return
        problem = None if self.text == self._questioned else self._object_to(self.text)
        self._questioned = self.text if problem else ""
        if problem:
            self._tell(self.Objected(f"{problem}, or press Enter again to send the text as it is"))
        elif self.text.strip():
            self._tell(self.Sent(self.text))
            self.load_text("")
            self.suggest_first_message("")
        else:
            self._tell(self.SentNothing())

    @property
    def _ends_in_backslash(self) -> bool:
        """Whether one backslash is before the cursor, at the end: it stands for a line break."""
        line = self._folded.unfold(self.document.get_line(self.cursor_location[0]))
        is_at_end = self.cursor_location == self.document.end
        return is_at_end and line.endswith("\\") and not line.endswith("\\\\")

    def _continue_line(self) -> None:
        """Replace the last letter of a line, which may be that of a folded one, by a line break."""
        row, column = self.cursor_location
        last = (row, column - 1), (row, column)
        self.replace(f"{self.get_text_range(*last)[:-1]}\n", *last)

    def action_newline(self) -> None:
        """Insert a line break."""
        self.insert("\n")

    def action_accept(self) -> None:
        """Accept the suggestion. Without one, Tab moves the focus as usual, but not from a text."""
        if self.suggestion:
            self.insert(self.suggestion)
        elif self.text:
            self._accept_quoted()
        elif self._first_message:
            self.set_text(self._first_message)
        else:
            raise SkipAction

    def _accept_quoted(self) -> None:
        """Put a path that needs quotes in place of the beginning that was typed without them."""
        row, column = self.cursor_location
        line = self.document.get_line(row)
        if column == len(line) and (path := self._complete_quoted(line)):
            start = (row, line.rindex("@") + 1)
            self.move_cursor(self.replace(path, start, (row, column)).end_location)

    def action_cursor_up(self, select: bool = False) -> None:
        """Move up by a line; in an empty composer, bring back an earlier message."""
        if not self.text and (waiting := self._take_back()) is not None:
            self.set_text(waiting)
        elif not self.text:
            self._recall(self._history.last())
        elif self._is_recalled and self.cursor_at_first_line:
            self._recall(self._history.move(-1))
        else:
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        """Move down by a line; from the end of an earlier message, go to the one after it."""
        if self._is_recalled and self.cursor_at_last_line:
            later = self._history.move(1)
            self._recall("" if later is None else later)
        else:
            super().action_cursor_down(select)

    @property
    def _is_recalled(self) -> bool:
        """Whether the text is an earlier message as it was."""
        return bool(self.text) and self.text == self._recalled

    def _recall(self, text: str | None) -> None:
        if text is not None:
            self._recalled = text
            self.set_text(text)

    def action_cursor_page_up(self) -> None:
        """Scroll up, if there are more lines than fit; if not, the conversation scrolls."""
        self._skip_unless_scrollable()
        super().action_cursor_page_up()

    def action_cursor_page_down(self) -> None:
        """Scroll down, if there are more lines than fit; if not, the conversation scrolls."""
        self._skip_unless_scrollable()
        super().action_cursor_page_down()

    def _skip_unless_scrollable(self) -> None:
        if not self.max_scroll_y:
            raise SkipAction

    async def action_undo_or_suspend(self) -> None:
        """Undo the last change; where nothing was written, suspend the chat, as in a shell."""
        if self.text or self.history.undo_stack or self.history.redo_stack:
            self.undo()
        else:
            await self.app.run_action("suspend_process")

    def action_leave(self) -> None:
        """Go to the messages above."""
        self._tell(self.Exited())

    def action_cut(self) -> None:
        """Cut the selection, if there is one. Textual would cut the whole line without one."""
        if text := self.selected_text:
            self._delete_via_keyboard(*self.selection)
            self.app.copy_to_clipboard(text)

    def action_editor(self) -> None:
        """Write the message in an editor."""
        self._tell(self.EditorRequested())

    async def action_delete_or_quit(self) -> None:
        """Delete the next letter; in an empty composer, quit."""
        if self.text:
            self.action_delete_right()
        else:
            await self.app.action_quit()


def _is_text(event: events.Key) -> bool:
    """Whether a paste that a terminal sends as keys may have this key."""
    return event.is_printable or event.key in ("enter", "ctrl+j", "tab")
