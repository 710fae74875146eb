"""Turn view: one turn of the conversation."""

import re
from collections.abc import Iterable
from itertools import takewhile
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from localspec.conversation.events import Ended, Piece
from localspec.conversation.turns import Turn
from localspec.conversation.unfinished import EDITED
from localspec_tui.found_text import occurrences
from localspec_tui.origins import Origins, OriginSegment
from localspec_tui.sanitized import sanitized
from localspec_tui.widgets.origin_view import OriginView
from localspec_tui.widgets.single_layout import SingleLayout
from localspec_tui.widgets.streaming_markdown import StreamingMarkdown
from localspec_tui.widgets.styled_text import StyledText
from localspec_tui.widgets.thought_view import ThoughtView
from localspec_tui.widgets.virtual_text import VirtualText

_NAMES = {"user": "You", "assistant": "Answer", "system": "System", "tool": "Tool"}
_STOP_REASONS = {
    "cancelled": "stopped",
    "interrupted": "interrupted",
    "length": "cut off: the limit of tokens is reached",
    "context": "cut off: the context is full",
    EDITED: "edited: a message may follow, or Ctrl-G goes on from here",
}


class TurnView(SingleLayout, can_focus=True):
    """Shows a turn. For an answer that is being written, call `append` and `end`.

    variant: number of this variant, from 1, and how many there are. origins: of the text so far.
    markdown: whether answers are Markdown; if not, they are shown as plain text.
    """

    # A click, perhaps just into the window, must not make letters commands.
    FOCUS_ON_CLICK = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "thought", "Thoughts", tooltip="show or hide what it thought before"),
    ]
    DEFAULT_CSS = """
    TurnView {
        width: 1fr;
        height: auto;
        margin: 0 0 1 0;
        padding: 0 1;
        border-left: blank;
        &:focus { border-left: wide $primary; }
        & > #title { height: 1; color: $foreground 60%; }
        & > #stop-reason { height: 1; color: $text-warning; text-style: italic; }
        &:ansi > #title { color: ansi_default; text-style: dim; }
        &.user { background: $foreground 5%; }
        &.user:ansi { background: ansi_default; }
        &.user > #title { color: $text-primary; text-style: bold; }
    }
    """

    def __init__(
        self,
        turn: Turn,
        *,
        variant: tuple[int, int] = (1, 1),
        origins: Iterable[OriginSegment] = (),
        markdown: bool = True,
    ) -> None:
        super().__init__(classes=turn.role)
        self.turn = turn
        self._variant = variant
        self._origins = Origins.of(origins)
        self._origin_view: OriginView | None = None
        self._is_origin_view_on = False
        self._thought: ThoughtView | None = None
        self._marked: tuple[re.Pattern[str] | None, int | None] = None, None
        # The text with the place in sight.
        self._found_in: VirtualText[Any] | None = None
        markdown = markdown and turn.role == "assistant"
        self._body = StreamingMarkdown() if markdown else StyledText()
        self._stop_reason = Static(id="stop-reason", markup=False)
        # Characters of the turn's thought and content that are shown, and tokens appended.
        self._shown_thought = self._shown_content = self._tokens = 0
        if self._is_growing:
            self._show_growth()
        else:
            self._thought = ThoughtView(turn.thought) if turn.thought else None
            self._body.append(turn.content)
            self._shown_thought, self._shown_content = len(turn.thought), len(turn.content)

    def compose(self) -> ComposeResult:
        yield Static(Content(self._title()), id="title")
        if self._thought:
            yield self._thought
        yield self._body
        if self._origin_view:
            yield self._origin_view
        yield self._stop_reason

    def on_mount(self) -> None:
        if not self._is_growing:
            # It may have ended since it was made.
            self._show_growth()
            self._finish()
        self._show_stop_reason()

    def append(self, piece: Piece) -> None:
        """Show a token that was added to the turn."""
        self._tokens += 1
        origins = self._origin_view or self._origins
        origins.append(piece.said, piece.token.origin)
        if self._is_origin_view_on and not self._origin_view:
            self.show_origins(True)
        self._show_growth()

    def end(self, ended: Ended) -> None:
        """Show the end of the answer."""
        self._show_growth()
        if self._origin_view:
            self._origin_view.finish(ended.said)
        else:
            self._origins.append_rest(ended.said)
        self._finish()
        self._show_stop_reason()

    def show_origins(self, on: bool) -> None:
        """Replace the text with the origin view, if origins are known; or go back to the text."""
        self._is_origin_view_on = on
        if on and not self._origin_view and self._origins.names:
            self._origin_view = OriginView(self._origins)
            self._mount_before(self._origin_view, self._stop_reason)
        if self._origin_view:
            self._origin_view.display = on
            self._body.display = not on
        self.mark(*self._marked)

    @property
    def shows_thought(self) -> bool:
        """Whether the text of its thought is shown."""
        return self._thought is not None and self._thought.is_open

    @property
    def shows_origins(self) -> bool:
        """Whether the origin view is shown in place of the text."""
        return self._origin_view is not None and self._is_origin_view_on

    @property
    def shows_markdown(self) -> bool:
        """Whether the text is shown as Markdown."""
        return isinstance(self._shown_text, StreamingMarkdown)

    def mark(self, pattern: re.Pattern[str] | None, shown: int | None) -> None:
        """Mark what a pattern finds in all that is shown. shown: the number of the place in sight.

        The places in the thought, if that is shown, come before those in the text.
        """
        self._marked = pattern, shown
        in_thought = 0
        if pattern and self.shows_thought:
            in_thought = occurrences(pattern, sanitized(self.turn.thought))
        is_before = shown is not None and shown < in_thought
        self._found_in = self._thought.text if self._thought and is_before else self._shown_text
        if self._thought:
            self._thought.text.mark(pattern, shown if is_before else None)
        self._shown_text.mark(pattern, None if is_before or shown is None else shown - in_thought)

    @property
    def found_row(self) -> int:
        """The row, from the top of this view, of the place in sight."""
        found = self._found_in or self._shown_text
        above = (node for node in found.ancestors_with_self if isinstance(node, Widget))
        parts = takewhile(lambda node: node is not self, above)
        return sum(part.virtual_region.y for part in parts) + found.found_row

    @property
    def _shown_text(self) -> VirtualText[Any]:
        return self._origin_view.text if self._origin_view and self.shows_origins else self._body

    @property
    def has_variants(self) -> bool:
        """Whether the turn has other variants."""
        return self._variant[1] > 1

    @property
    def can_be_edited(self) -> bool:
        """Whether it is a question, or an answer that has ended."""
        return self.turn.role == "user" or (
            self.turn.role == "assistant" and self.turn.stop_reason is not None
        )

    @property
    def origins(self) -> Origins:
        """The origins of the text so far."""
        return self._origin_view.origins if self._origin_view else self._origins

    @property
    def latest_drafter(self) -> str | None:
        """The drafter of the last drafted token, or None."""
        return self._origins.latest_drafter

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether the key of an action works here."""
        return action != "thought" or self._thought is not None

    def action_thought(self) -> None:
        """Show or hide the thought."""
        if self._thought:
            self._thought.toggle()

    @property
    def _is_growing(self) -> bool:
        return self.turn.role == "assistant" and self.turn.stop_reason is None

    def _show_growth(self) -> None:
        """Show what the turn holds beyond what is shown.

        Pieces may come late: the turn may hold their text before `append` is called.
        """
        if thought := self.turn.thought[self._shown_thought :]:
            self._shown_thought += len(thought)
            self._append_thought(thought)
        if content := self.turn.content[self._shown_content :]:
            self._shown_content += len(content)
            if self._thought:
                self._thought.end()
            self._body.append(content)

    def _append_thought(self, text: str) -> None:
        if self._thought is None:
            self._thought = ThoughtView()
            self._mount_before(self._thought, self._body)
        self._thought.append(text, self._tokens)

    def _mount_before(self, widget: Widget, sibling: Widget) -> None:
        """Mount a widget, unless `compose` is still to come and will yield it."""
        if sibling.parent is self:
            self.mount(widget, before=sibling)

    def _finish(self) -> None:
        if self._thought:
            self._thought.end()
        if isinstance(self._body, StreamingMarkdown):
            self._body.finish()

    def _title(self) -> str:
        number, count = self._variant
        numbers = f" {number}/{count}" if count > 1 else ""
        return _NAMES[self.turn.role] + numbers + (", edited" if self.turn.edited else "")

    def _show_stop_reason(self) -> None:
        reason = _STOP_REASONS.get(self.turn.stop_reason or "")
        if not reason and self.turn.stop_reason and not self.turn.content:
            reason = "nothing was said"
        self._stop_reason.display = reason is not None
        self._stop_reason.update(reason or "")
