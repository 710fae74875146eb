"""Outbox: messages on their way to the model, one at a time."""

from collections import deque
from typing import TYPE_CHECKING

from localspec.errors import InvalidValueError
from localspec_tui.attachments import Attachments
from localspec_tui.completion import remark
from localspec_tui.slash_commands import as_message

if TYPE_CHECKING:
    from localspec.conversation.turns import Turn
    from localspec_tui.screens.chat import ChatScreen

# Letters of a message that some models take seconds to divide into tokens.
_LONG = 10_000


class Outbox:
    """Gives a message to the engine once the answer before it has ended; until then it is queued.

    Its messages are texts as the user typed them, so that they can go back into the text box.

    in_flight: the message that the engine has, but the conversation has not; empty if there is
    none. queued: those that wait, the first to be sent first. held: why they wait although nothing
    is being written; None if they are sent as soon as possible.
    """

    def __init__(self, screen: "ChatScreen") -> None:
        self.in_flight = ""
        self.queued: deque[str] = deque()
        self.held: str | None = None
        self._screen = screen
        # The turn that the text in flight replaces, if it does, and what is to be said of the text.
        self._edited: Turn | None = None
        self._remark: str | None = None

    @property
    def unsent(self) -> list[str]:
        """All messages that are not in the conversation, in order."""
        return [*([self.in_flight] if self.in_flight else []), *self.queued]

    def send(self, text: str) -> None:
        """Send a message after those that wait, which are not held any more."""
        self.queued.append(text)
        self.held = None
        self._show()
        self.send_next()
        self._screen.view.follow_end()

    def edit(self, turn: "Turn", text: str) -> None:
        """Send another text of a turn at once, unless a message or a switch is under way."""
        if self.in_flight or self._screen.pending_changes:
            what = (
                "your last message is still being sent"
                if self.in_flight
                else "another conversation or variant is being opened"
            )
            self._screen.view.note(f"{what}; press Enter again")
            self._screen.unsent.begin_edit(turn, text)
            return
        self._give(text, turn)
        self._screen.view.follow_end()

    def send_next(self) -> None:
        """Give the first message to the engine, unless it is busy or the messages are held.

        A message before it that was refused comes back first.
        """
        is_busy = self._screen.chat.engine_thread.busy or bool(self.in_flight)
        if self.queued and self.held is None and not is_busy:
            self._give(self.queued.popleft())
            self._show()

    def hold(self, reason: str) -> None:
        """Let the messages wait until the user sends them on, if there are any."""
        if self.queued:
            self.held = reason
            self._show()

    def release(self) -> None:
        """Send the messages as soon as possible."""
        self.held = None
        self._show()
        self.send_next()

    def take_last(self) -> str | None:
        """Remove the last message and return it; None if none waits."""
        last = self.queued.pop() if self.queued else None
        self._show()
        return last

    def drop(self) -> int:
        """Remove all messages that wait; their number."""
        count = len(self.queued)
        self.queued.clear()
        self._show()
        return count

    def note_remark(self) -> None:
        """Say what there is to say of the message that has come into the conversation."""
        line, self._remark = self._remark, None
        if line:
            self._screen.view.note(line)

    def refuse(self, problem: str) -> None:
        """Take back the message that the engine refused. problem: why it did.

        It comes into the text box, or to the front of the queue if that is in use. If it is another
        text of a turn, its edit begins again.
        """
        text, self.in_flight = self.in_flight, ""
        self._screen.view.note(problem, warning=True)
        if not text:
            self.hold("because the answer failed")
        elif self._edited:
            self._screen.unsent.begin_edit(self._edited, text)
            self.hold("because the edit was refused")
        elif self.queued or self._screen.composer.text:
            self.queued.appendleft(text)
            self.hold("because the first was refused")
        else:
            self._screen.composer.set_text(text)

    def retry(self) -> None:
        """Send the message that was refused once more."""
        if self.queued:
            self.release()
        else:
            self._screen.composer.action_send()

    def _give(self, text: str, edited: "Turn | None" = None) -> None:
        """Give a message to the engine. edited: the turn it replaces, if it does."""
        engine_thread, self.in_flight, self._edited = self._screen.chat.engine_thread, text, edited
        if edited and edited.role == "assistant":
            engine_thread.edit_answer(self._screen.conversation.turns.index(edited), text)
            return
        attachments = Attachments.of(edited)
        try:
            message = attachments.attach(as_message(text))
        except InvalidValueError as error:
            self.refuse(str(error))
            return
        self._remark = remark(text, attachments)
        if len(text) > _LONG or (isinstance(message, str) and len(message) > _LONG):
            self._screen.progress.show_action("dividing the message into tokens")
        if edited is None:
            engine_thread.send(message)
        else:
            engine_thread.edit(self._screen.conversation.turns.index(edited), message)

    def _show(self) -> None:
        if not self.queued:
            self.held = None
        self._screen.queue.show(self.queued, self.held)
        self._screen.refresh_bindings()
