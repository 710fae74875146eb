"""Conversation search: finds a text in the conversation on the chat screen."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from localspec.conversation.turns import Turn
from localspec_tui.found_text import occurrences
from localspec_tui.shown_texts import ShownTexts
from localspec_tui.text_pattern import pattern_of
from localspec_tui.widgets.find_bar import FindBar
from localspec_tui.widgets.turn_entry import TurnEntry

if TYPE_CHECKING:
    from localspec_tui.screens.chat import ChatScreen

# Seconds to read turns before the screen has its turn.
_SLICE = 0.02


class Hit(NamedTuple):
    """An occurrence in a turn. number: among those of the turn, from 0."""

    turn: Turn
    number: int


class ConversationSearch:
    """Shows the places of a text, one after the other, from the last one on.

    Turns are read from the last one back, beside what else the screen does: to know what the
    Markdown of a long conversation shows takes seconds, the first time.

    pattern: finds the text; None while none is looked for. shown: the place that is in sight.
    bar: where the user types what to look for.
    """

    def __init__(self, screen: "ChatScreen") -> None:
        self.pattern: re.Pattern[str] | None = None
        self.shown: Hit | None = None
        self.bar = FindBar(self.find, self.move, self.close, id="find")
        self._screen = screen
        self._texts = ShownTexts()
        # The places so far, the last one first, and whether turns are still being read.
        self._found: list[Hit] = []
        self._is_reading = False
        # Steps past the places so far: where they lead is known once all turns are read.
        self._due = 0

    def open(self, text: str = "") -> None:
        """Look for a text; empty: what was looked for last, until the user types another."""
        self.bar.open(text)
        self._texts.forget_others(entry.turn for entry in self._screen.view.turn_entries)
        self.find(self.bar.text)

    def close(self) -> None:
        """Look for nothing any more."""
        self._screen.workers.cancel_group(self._screen, "find")
        self.pattern = self.shown = None
        self._mark()
        self._screen.composer.focus()

    def find(self, text: str) -> None:
        """Look for a text, and show its last place; where it goes on with the one before, that."""
        before, self.shown, self._due = self.shown, None, 0
        self.pattern = pattern_of(text) if text.strip() else None
        if before and (entry := self._screen.view.entry_of(before.turn)):
            self._go_to(next(iter(self._hits(entry)), None))
        self._read_all(go_to_last=True)

    def refresh(self) -> None:
        """Look again, because the conversation shows something else; nothing is scrolled."""
        if self.pattern:
            self._read_all(go_to_last=False)

    def move(self, step: int) -> None:
        """Show the next place, or the one before for -1; behind the last comes the first."""
        if self._found:
            known = self.shown in self._found
            at = self._found.index(self.shown) if known and self.shown else min(step, 0)
            self._due += step
            if self._is_reading and not 0 <= at - self._due < len(self._found):
                return
            self._go_to(self._found[(at - self._due) % len(self._found)])
            self._due = 0
            self._show_count()

    def _read_all(self, *, go_to_last: bool) -> None:
        # Not the coroutine itself: the worker may be cancelled before it begins.
        read: Callable[[], Awaitable[None]] = partial(self._read, go_to_last)
        self._screen.run_worker(read, group="find", exclusive=True)

    async def _read(self, go_to_last: bool) -> None:
        """Find all places, from the last turn back, and have one of them in sight."""
        self._found, self._is_reading = [], True
        began = monotonic()
        for entry in reversed(self._screen.view.turn_entries if self.pattern else []):
            self._found += self._hits(entry)
            if go_to_last and not self.shown and self._found:
                self._go_to(self._found[0])
            if monotonic() - began > _SLICE:
                self._show_count()
                await asyncio.sleep(0)
                began = monotonic()
        self._is_reading = False
        if self.shown not in self._found:
            self.shown = self._found[0] if self._found else None
        if self._due:
            self.move(0)
        self._show_count()
        self._mark()

    def _hits(self, entry: TurnEntry) -> Sequence[Hit]:
        """The places in a turn, the last one first."""
        if not self.pattern:
            return []
        count = sum(occurrences(self.pattern, text) for text in self._texts.of(entry))
        return [Hit(entry.turn, number) for number in reversed(range(count))]

    def _show_count(self) -> None:
        if not self.pattern:
            self.bar.show_nothing()
        elif self._is_reading:
            self.bar.show_reading(len(self._found))
        else:
            at = self._found.index(self.shown) if self.shown else 0
            self.bar.show_count(len(self._found) - at, len(self._found))

    def _go_to(self, hit: Hit | None) -> None:
        self.shown = hit
        if hit:
            self._screen.view.go_to(hit.turn)
            self._screen.view.call_after_refresh(self._scroll_to_row)
        self._mark()

    def _scroll_to_row(self) -> None:
        if self.shown:
            self._screen.view.scroll_to_found(self.shown.turn)

    def _mark(self) -> None:
        for entry in self._screen.view.turn_entries:
            is_shown = self.shown and self.shown.turn is entry.turn
            entry.mark(self.pattern, self.shown.number if self.shown and is_shown else None)
