"""Late input: what comes from the terminal although Textual has not asked for it.

Textual would take the answer to a question that it does not know for keys.
"""

import os
import re
from collections.abc import Iterable
from time import monotonic

from textual._xterm_parser import XTermParser
from textual.events import Key
from textual.message import Message

from localspec_tui.terminal_background import ATTRIBUTES, BACKGROUND, Answered

# The beginning of an answer whose rest has not come yet.
_BEGUN = re.compile(r"\x1b(?:\](?:1(?:1(?:;[^\x07\x1b]*\x1b?)?)?)?|\[(?:\?[\d;]*)?)?\Z")
# What may be keys as well: Esc, and Alt with a bracket. After so many seconds it is.
_KEYS, _PATIENCE = ("\x1b", "\x1b[", "\x1b]"), 0.1


class LateInput:
    """typed: given to Textual first. answers: overlooked, each once."""

    def __init__(self, typed: str, answers: Iterable[re.Pattern[str]]) -> None:
        self._typed = typed
        self._answers = [*answers]
        self._begun, self._since = "", 0.0

    def due(self) -> str:
        """What was typed before Textual began to read, the first time; later, keys held back."""
        typed, self._typed = self._typed, ""
        if typed:
            return self.without_answers(typed)
        if self._begun in _KEYS and monotonic() - self._since > _PATIENCE:
            typed, self._begun = self._begun, ""
        return typed

    def without_answers(self, data: str) -> str:
        """What was typed of the data that a terminal sent."""
        data, self._begun = self._begun + data, ""
        for answer in [*self._answers]:
            data, count = answer.subn("", data, 1)
            if count:
                self._answers.remove(answer)
        if self._answers and (found := _BEGUN.search(data)):
            data, self._begun = data[: found.start()], found[0]
            self._since = monotonic()
        return data


def expect(answered: Answered) -> None:
    """Give Textual what was typed while the terminal was asked, and no answer that comes late.

    Where keys come in one burst, as over a slow line, an Esc among them stays one.
    """
    if os.name == "nt":
        return
    from textual.drivers import linux_driver

    late = LateInput(answered.typed, () if answered.is_complete else (BACKGROUND, ATTRIBUTES))

    class Parser(XTermParser):
        def feed(self, data: str) -> Iterable[Message]:
            # Nothing at all is the end of the input.
            if not data or (data := late.without_answers(data)):
                for message in super().feed(data):
                    # So Textual has Esc before keys with which it is no sequence that it knows.
                    is_caret = isinstance(message, Key) and message.character == "^"
                    yield Key("escape", "\x1b") if is_caret and "^" not in data else message

        def tick(self) -> Iterable[Message]:
            if typed := late.due():
                yield from super().feed(typed)
            yield from super().tick()

    # A driver makes its own parser.
    setattr(linux_driver, "XTermParser", Parser)  # noqa: B010
