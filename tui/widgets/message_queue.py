"""Message queue: the messages that wait for the answer before them to end."""

from collections.abc import Sequence

from rich.console import Group
from rich.text import Text
from textual.widgets import Static

from localspec.utils.format import counted

_MAX_SHOWN = 3


class MessageQueue(Static):
    """Hidden while no message waits."""

    def on_mount(self) -> None:
        self.display = False

    def show(self, messages: Sequence[str], held: str | None) -> None:
        """Show these messages. held: why they are not sent by themselves; None if they are."""
        self.display = bool(messages)
        if not messages:
            return
        lines = [" ".join(message.split()) for message in messages]
        if len(lines) > _MAX_SHOWN:
            rest = len(lines) - _MAX_SHOWN + 1
            lines[_MAX_SHOWN - 1 :] = [f"and {rest} more"]
        shown = "\n".join(f"  {line}" for line in lines)
        title = Text(_title(len(messages), held))
        self.update(Group(title, Text(shown, no_wrap=True, overflow="ellipsis")))


def _title(count: int, held: str | None) -> str:
    messages = counted(count, "message")
    keys = "Up edits the last, Esc drops all" if count > 1 else "Up edits it, Esc drops it"
    if held:
        return f"{messages} not sent, {held} (Enter sends, {keys})"
    return f"{messages} queued ({keys})"
