"""Unsent text: what the user has typed and not sent; it is kept with its session."""

from typing import TYPE_CHECKING

from localspec_tui import completion
from localspec_tui.attachments import Attachments
from localspec_tui.message_history import recalled_turn
from localspec_tui.pasted_paths import as_attachments
from localspec_tui.slash_commands import is_command

if TYPE_CHECKING:
    from localspec.conversation.turns import Turn
    from localspec_tui.screens.chat import ChatScreen

_EDIT_TITLES = {
    "user": "Edit your question (Esc cancels)",
    "assistant": "Edit the answer (Esc cancels)",
}
_LOST_EDIT = (
    "what you were editing is not in this conversation or variant: Up brings your text back"
)


class UnsentText:
    """The text in the text box: a new message, or another text of a question or of an answer.

    edited: the turn whose other text is in the box; None if it is a new message.
    """

    def __init__(self, screen: "ChatScreen") -> None:
        self.edited: Turn | None = None
        self._screen = screen
        # The new message that the box had before the edit, and what was put there for it.
        self._message = self._begun = ""
        # Another text of an answer of the session that is being left.
        self._left = ""

    @property
    def text(self) -> str:
        """What is kept with the session; a command is not worth that.

        Of an edit it is the other text of the question, if that was changed. That of an answer
        would come back as a message: see `edited_answer`.
        """
        text = self._screen.composer.text
        if self.edits_answer or (self.edited and text == self._begun):
            text = self._message
        return "" if is_command(text) else text.strip() and text

    @property
    def edits_answer(self) -> bool:
        """Whether the text in the box is that of an answer."""
        return self.edited is not None and self.edited.role == "assistant"

    @property
    def edited_answer(self) -> str:
        """The other text of an answer, if that was changed; empty without one."""
        text = self._screen.composer.text if self.edits_answer else ""
        return "" if text == self._begun else text.strip() and text

    def objection(self, text: str) -> str | None:
        """Why a text should not be sent as it is."""
        attachments = self.attachments
        return completion.objection(text, attachments) if attachments else None

    @property
    def attachments(self) -> Attachments | None:
        """What the text may name; None: it is an answer's, which attaches no files."""
        return None if self.edits_answer else Attachments.of(self.edited)

    def as_attachments(self, pasted: str) -> str | None:
        """What attaches pasted files; None where the box has no message, but e.g. `/save`."""
        if self.edits_answer or is_command(self._screen.composer.text):
            return None
        return as_attachments(pasted)

    def begin_edit(self, turn: "Turn", text: str | None = None) -> None:
        """Let the user change a turn. text: put into the box, whose own text comes back later."""
        composer = self._screen.composer
        if self.edited is None:
            self._message = composer.text
        elif composer.text.strip():
            self._screen.history.add(composer.text)
        self.edited, self._begun = turn, typed_text(turn)
        composer.border_title = _EDIT_TITLES.get(turn.role, "")
        self._screen.refresh_bindings()
        composer.set_text(self._begun if text is None else text)

    def end_edit(self) -> "Turn | None":
        """End the edit after its text was sent; return the turn, or None without an edit."""
        composer, edited = self._screen.composer, self._stop_edit()
        if edited and not composer.text:
            composer.set_text(self._message)
        return edited

    def give_up_edit(self) -> None:
        """Put the message from before the edit back into the box, if there is an edit."""
        if self._stop_edit():
            self._screen.composer.put(self._message)

    @property
    def is_lost(self) -> bool:
        """Whether the turn whose other text is in the box is not in the conversation any more."""
        return self.edited is not None and self.edited not in self._screen.conversation.turns

    def end_lost_edit(self) -> None:
        """Give up the edit of a turn that is not in the conversation any more."""
        if self.is_lost:
            text = self._screen.composer.text
            self.give_up_edit()
            self.keep_lost(text)

    def keep_lost(self, text: str) -> None:
        """Move the text of such an edit to the earlier messages, if it was changed."""
        if text.strip() and text != self._begun:
            self._screen.history.add(text)
            self._screen.view.note(_LOST_EDIT)

    def set_aside(self) -> bool:
        """Move the text of the box to the earlier messages, which Up brings back, if there is one.

        An edit is given up.
        """
        composer = self._screen.composer
        if not composer.text.strip():
            return False
        self._screen.history.add(composer.text)
        composer.load_text("")
        self.give_up_edit()
        return True

    def _stop_edit(self) -> "Turn | None":
        edited, self.edited = self.edited, None
        self._screen.composer.border_title = ""
        self._screen.refresh_bindings()
        return edited

    def leave(self) -> None:
        """Keep the text with the session that is left, and empty the box."""
        self._left = self.edited_answer
        text, problem = self.text, self._screen.chat.save_unsent(self.text)
        self._stop_edit()
        self._screen.composer.load_text(text if problem else "")

    def put_back(self, text: str) -> None:
        """Put a text that was kept into the box, before what was typed since.

        What was not kept with the session that was left moves to the earlier messages.
        """
        if text:
            self._screen.composer.set_text(text + self._screen.composer.text)
        left, self._left = self._left, ""
        self.keep_lost(left)


def typed_text(turn: "Turn") -> str:
    """What is in the box at the beginning of an edit. A message must not be taken for a command."""
    return turn.content if turn.role == "assistant" else recalled_turn(turn)
