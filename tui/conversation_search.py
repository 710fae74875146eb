"""Conversation search: finds a text in the conversation on the chat screen."""

import re
from typing import TYPE_CHECKING

from localspec_tui.found_text import Hit, hits, pattern_of
from localspec_tui.widgets.find_bar import FindBar

if TYPE_CHECKING:
    from localspec_tui.screens.chat import ChatScreen


class ConversationSearch:
    """Shows the places of a text, one after the other, from the last one on.

    pattern: finds the text; None while none is looked for. shown: the place that is in sight.
    """

    def __init__(self, screen: "ChatScreen") -> None:
        self.pattern: re.Pattern[str] | None = None
        self.shown: Hit | None = None
        self._screen = screen

    @property
    def _bar(self) -> FindBar:
        return self._screen.query_one(FindBar)

    def open(self) -> None:
        """Let the user type what to look for."""
        self._bar.open()
        self.find(self._bar.text)

    def close(self) -> None:
        """Look for nothing any more."""
        self.pattern = self.shown = None
        self._mark()
        self._screen.composer.focus()

    def find(self, text: str) -> None:
        """Look for a text, and show its last place; where it goes on with the one before, that."""
        before, self.shown = self.shown, None
        self.pattern = pattern_of(text) if text.strip() else None
        found = self._hits
        if not self.pattern:
            self._bar.show_nothing()
        elif before and (same := [each for each in found if each.turn is before.turn]):
            self._show(found, found.index(same[-1]))
        else:
            self._show(found, len(found) - 1)
        self._mark()

    def move(self, step: int) -> None:
        """Show the next place, or the one before for -1; behind the last comes the first."""
        found = self._hits
        if self.pattern:
            at = found.index(self.shown) if self.shown in found else -max(step, 0)
            self._show(found, (at + step) % len(found) if found else -1)
            self._mark()

    @property
    def _hits(self) -> list[Hit]:
        return hits(self._screen.conversation.turns, self.pattern) if self.pattern else []

    def _show(self, found: list[Hit], at: int) -> None:
        self._bar.show_count(at + 1, len(found))
        self.shown = found[at] if found else None
        if self.shown:
            self._screen.view.go_to(self.shown.turn)
            self._screen.view.call_after_refresh(self._scroll_to_row)

    def _scroll_to_row(self) -> None:
        if self.shown:
            self._screen.view.scroll_to_found(self.shown.turn)

    def _mark(self) -> None:
        for view in self._screen.view.turn_views:
            shown = self.shown.number if self.shown and self.shown.turn is view.turn else None
            view.mark(self.pattern, shown)
