"""Message size: how many tokens the text in the box has, and what it leaves of the context."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.cells import cell_len
from textual.content import Content

from localspec.conversation.events import Gauge
from localspec.errors import InvalidValueError
from localspec.utils.running_clock import running_clock
from localspec_tui.attachments import Attachments
from localspec_tui.slash_commands import as_message, is_command

if TYPE_CHECKING:
    from localspec_tui.screens.chat import ChatScreen

# Letters of a text from which on its tokens are counted.
SHORTEST = 48
# Letters of a message with its files up to which these are counted too.
_LONGEST = 1 << 20
# Seconds without a change before tokens are counted, and how often as long as the last count took.
_PAUSE, _FACTOR = 0.25, 5
# Cells of the box's edge beside its label.
_BESIDE = 6


class Counted(NamedTuple):
    """Tokens of a message. lacks_files: whether files that it attaches are not counted."""

    tokens: int
    lacks_files: bool


class MessageSize:
    """Counts in a thread of its own, a moment after the last key, and shows it on the box's edge.

    To tokenize takes nothing but the model's vocabulary, so an answer goes on meanwhile.
    """

    def __init__(self, screen: "ChatScreen") -> None:
        self._screen = screen
        self._model = ""
        self._counted: Counted | None = None
        self._seconds = 0.0
        # When the text has changed last, and whether it is about to be counted, or being counted.
        self._changed, self._is_due = 0.0, False

    def show_model(self, label: str) -> None:
        """Show the name of another model, and count with its vocabulary."""
        self._model = label
        self.text_changed()

    def text_changed(self) -> None:
        """Count soon; nothing is shown of a short text, or of a command."""
        self._changed = running_clock()
        if self._counted and not self._is_countable(self._screen.composer.text):
            self._counted = None
            self.show()
        if not self._is_due:
            self._is_due = True
            self._screen.composer.set_timer(_PAUSE, self._count_when_typed)

    def show(self) -> None:
        """Show what was counted, and the name of the model if there is room beside it."""
        composer, label = self._screen.composer, self._model
        if self._counted:
            size = size_text(self._counted, self._gauge)
            both = f"{size} · {label}"
            label = both if cell_len(both) <= composer.size.width - _BESIDE else size
        if composer.border_subtitle != (shown := Content(label)).markup:
            composer.border_subtitle = shown

    @property
    def _gauge(self) -> Gauge | None:
        """The context in use; None where it is not known what the next prompt takes of it."""
        return None if self._screen.unsent.edited else self._screen.chat.engine_thread.gauge

    @staticmethod
    def _is_countable(text: str) -> bool:
        return len(text) >= SHORTEST and not is_command(text)

    def _count_when_typed(self) -> None:
        """Count, unless a key was pressed just now."""
        wait = self._changed + max(_PAUSE, _FACTOR * self._seconds) - running_clock()
        if wait > 0:
            self._screen.composer.set_timer(wait, self._count_when_typed)
        elif self._is_countable(text := self._screen.composer.text):
            count: Callable[[], Awaitable[None]] = partial(self._count, text)
            self._screen.run_worker(count, group="count")
        else:
            self._is_due = False

    async def _count(self, text: str) -> None:
        began, attachments = running_clock(), self._screen.unsent.attachments
        counted = await asyncio.to_thread(self._counted_now, text, attachments)
        self._seconds = running_clock() - began
        if self._changed > began:
            self._count_when_typed()
            return
        self._counted, self._is_due = counted, False
        self.show()

    def _counted_now(self, text: str, attachments: Attachments | None) -> Counted | None:
        """Runs in a thread. attachments: None where the text is an answer's."""
        message, lacks_files = as_message(text) if attachments else text, False
        if attachments and "@" in message:
            try:
                whole = attachments.attach(message)
                texts = whole if isinstance(whole, str) else "\n".join(_texts(whole))
                # The rows of images are known once they are read.
                lacks_files = texts is not whole or len(texts) > _LONGEST
                message = texts if len(texts) <= _LONGEST else message
            except (InvalidValueError, OSError, ValueError):
                # Sending it says what is wrong.
                lacks_files = True
        tokens = self._screen.chat.engine_thread.count_tokens(message)
        return None if tokens is None else Counted(tokens, lacks_files)


def _texts(parts: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    return (part["text"] for part in parts if part["type"] == "text")


def size_text(counted: Counted, gauge: Gauge | None) -> str:
    """What a message takes of the context, in a few words.

    gauge: without the message; None if that is not known.
    """
    size = f"{counted.tokens:,} tokens" + (" + files" if counted.lacks_files else "")
    if gauge is None or not gauge.size:
        return size
    left = gauge.size - gauge.used - counted.tokens
    if counted.tokens >= gauge.size:
        return f"{size}, more than the context of {gauge.size:,}"
    if left <= 0:
        return f"{size}, more than the {gauge.size - gauge.used:,} left of {gauge.size:,}"
    # The marks that a chat template puts around a message are tokens, too.
    return f"{size}, leaves about {left:,} of {gauge.size:,}"
