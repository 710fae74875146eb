"""Message history: what the user wrote before, to be written again."""

from collections.abc import Callable, Sequence

from localspec.conversation.turns import Turn
from localspec_tui.attachments import Attachments, typed_message
from localspec_tui.slash_commands import as_typed

# Messages of earlier sessions that can be brought back.
HISTORY_LENGTH = 500


def recalled(message: str) -> str:
    """A message of a conversation as it was typed; see `Attachments.detach` for its files."""
    return as_typed(Attachments().detach(message))


def recalled_turn(turn: Turn) -> str:
    """A turn of the user as it was typed, with the names of its images, too."""
    return as_typed(typed_message(turn))


class MessageHistory:
    """The messages of earlier sessions, and those of this one; each once in a row.

    read_older: returns the messages of earlier sessions, the oldest first; called when one is
    needed for the first time.
    """

    def __init__(self, read_older: Callable[[], Sequence[str]]) -> None:
        self._read_older: Callable[[], Sequence[str]] | None = read_older
        self._messages: list[str] = []
        self._at = 0

    def add(self, text: str) -> None:
        """Note a message that was sent."""
        messages = self._all
        if messages[-1:] != [text]:
            messages.append(text)

    def last(self) -> str | None:
        """The newest message, or None."""
        self._at = len(self._all)
        return self.move(-1)

    def move(self, step: int) -> str | None:
        """The message before for -1, or after for 1, the one returned last; None at the ends."""
        at = self._at + step
        if not 0 <= at < len(self._all):
            return None
        self._at = at
        return self._all[at]

    @property
    def _all(self) -> list[str]:
        if self._read_older:
            self._messages = [*self._read_older()]
            self._read_older = None
        return self._messages
