"""Turn entry: a turn as the conversation view shows it, whether it is mounted or not."""

import re

from localspec.conversation.events import Ended, Piece
from localspec.conversation.turns import Turn
from localspec_tui.origins import Origins
from localspec_tui.widgets.thought_view import Thought
from localspec_tui.widgets.turn_view import TurnView


class TurnEntry:
    """For an answer that is being written, call `append` and `end`. A view that is mounted follows.

    variant: number of this variant, from 1, and how many there are. origins: of the text so far;
    whoever calls `append` or `end` has added to them. has_markdown: whether an answer is Markdown;
    if not, it is shown as plain text. view: None while it is not mounted. pattern, hit: what is
    marked in the text, and the number of the place in sight.
    """

    def __init__(
        self,
        turn: Turn,
        *,
        variant: tuple[int, int] = (1, 1),
        origins: Origins | None = None,
        has_markdown: bool = True,
    ) -> None:
        self.turn = turn
        self.variant = variant
        self.origins = origins or Origins()
        self.has_markdown = has_markdown and turn.role == "assistant"
        self.thought = Thought()
        self.view: TurnView | None = None
        self.pattern: re.Pattern[str] | None = None
        self.hit: int | None = None
        self._tokens = 0
        self._is_origin_view_on = False

    def make_view(self) -> TurnView:
        """Make the view, which follows from now on."""
        self.view = TurnView(self)
        return self.view

    def drop_view(self) -> None:
        """The view is unmounted."""
        self.view = None

    @property
    def text(self) -> str:
        """The text of the turn."""
        return self.turn.content

    # While it is being written.

    @property
    def is_growing(self) -> bool:
        """Whether it is an answer that is being written."""
        return self.turn.role == "assistant" and self.turn.stop_reason is None

    def append(self, piece: Piece) -> None:
        """Show a token that was added to the turn."""
        self._tokens += 1
        if piece.thought and self.is_growing:
            self.thought.grow(self._tokens)
        if piece.said:
            self.thought.end()
        if self.view:
            self.view.append(piece)

    def end(self, ended: Ended) -> None:
        """Show the end of the answer."""
        self.thought.end()
        if self.view:
            self.view.end(ended)

    # What is shown.

    def show_origins(self, on: bool) -> None:
        """Replace the text with the origin view, if origins are known; or go back to the text."""
        self._is_origin_view_on = on
        if self.view:
            self.view.show_origins()

    def mark(self, pattern: re.Pattern[str] | None, hit: int | None) -> None:
        """Mark what a pattern finds in all that is shown. hit: the number of the place in sight.

        The places in the thought, if that is shown, come before those in the text.
        """
        self.pattern, self.hit = pattern, hit
        if self.view:
            self.view.mark()

    @property
    def shows_thought(self) -> bool:
        """Whether the text of its thought is shown."""
        return self.thought.is_open and bool(self.turn.thought)

    @property
    def shows_origins(self) -> bool:
        """Whether the origin view is shown in place of the text."""
        return self._is_origin_view_on and bool(self.origins.names)

    @property
    def shows_markdown(self) -> bool:
        """Whether the text is shown as Markdown."""
        return self.has_markdown and not self.shows_origins

    @property
    def has_variants(self) -> bool:
        """Whether the turn has other variants."""
        return self.variant[1] > 1

    @property
    def can_be_edited(self) -> bool:
        """Whether it is a question, or an answer that has ended."""
        return self.turn.role == "user" or (
            self.turn.role == "assistant" and self.turn.stop_reason is not None
        )
