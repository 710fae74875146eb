"""Turn view: one turn of the conversation."""

from itertools import takewhile
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from localspec.conversation.events import Ended, Piece
from localspec.conversation.unfinished import EDITED
from localspec_tui.found_text import occurrences
from localspec_tui.sanitized import sanitized
from localspec_tui.widgets.origin_view import OriginView
from localspec_tui.widgets.single_layout import SingleLayout
from localspec_tui.widgets.streaming_markdown import StreamingMarkdown
from localspec_tui.widgets.styled_text import StyledText
from localspec_tui.widgets.thought_view import ThoughtView
from localspec_tui.widgets.virtual_text import VirtualText

if TYPE_CHECKING:
    from localspec_tui.widgets.turn_entry import TurnEntry

_NAMES = {"user": "You", "assistant": "Answer", "system": "System", "tool": "Tool"}
_STOP_REASONS = {
    "cancelled": "stopped",
    "interrupted": "interrupted: Ctrl-R answers again, or E, Enter and Ctrl-G go on from here",
    "length": "cut off: the limit of tokens is reached",
    "context": "cut off: the context is full",
    EDITED: "edited: a message may follow, or Ctrl-G goes on from here",
}


class TurnView(SingleLayout, can_focus=True):
    """Shows what an entry holds, and follows it."""

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
        & > #stop-reason { height: auto; color: $text-warning; text-style: italic; }
        &:ansi > #title { color: ansi_default; text-style: dim; }
        &.user { background: $foreground 5%; }
        &.user:ansi { background: ansi_default; }
        &.user > #title { color: $text-primary; text-style: bold; }
    }
    """

    def __init__(self, entry: "TurnEntry") -> None:
        super().__init__(classes=entry.turn.role)
        self.entry = entry
        self.turn = entry.turn
        self._origin_view: OriginView | None = None
        self._thought: ThoughtView | None = None
        # The text with the place in sight.
        self._found_in: VirtualText[Any] | None = None
        self._body = StreamingMarkdown() if entry.has_markdown else StyledText()
        self._stop_reason = Static(id="stop-reason", markup=False)
        # Characters of the turn's thought and content that are shown.
        self._shown_thought = self._shown_content = 0
        self._show_growth()
        self.show_origins()

    def compose(self) -> ComposeResult:
        yield Static(Content(self._title()), id="title")
        if self._thought:
            yield self._thought
        yield self._body
        if self._origin_view:
            yield self._origin_view
        yield self._stop_reason

    def on_mount(self) -> None:
        if not self.entry.is_growing:
            # It may have ended since it was made.
            self._show_growth()
            self._finish()
        self._show_stop_reason()

    def append(self, piece: Piece) -> None:
        """Show a token that was added to the entry."""
        if self._origin_view:
            self._origin_view.append(piece.said, piece.token.origin)
        elif self.entry.shows_origins:
            self.show_origins()
        self._show_growth()

    def end(self, ended: Ended) -> None:
        """Show the end of the answer."""
        self._show_growth()
        if self._origin_view:
            if ended.said:
                self._origin_view.append(ended.said, self.entry.origins.segments[-1].origin)
            self._origin_view.finish()
        self._finish()
        self._show_stop_reason()

    def show_origins(self) -> None:
        """Show the origin view in place of the text, or the text, as the entry says."""
        on = self.entry.shows_origins
        if on and not self._origin_view:
            self._origin_view = OriginView(self.entry.origins.segments)
            self._mount_before(self._origin_view, self._stop_reason)
        if self._origin_view:
            self._origin_view.display = on
            self._body.display = not on
        self.mark()

    def mark(self) -> None:
        """Mark what the pattern of the entry finds."""
        pattern, hit = self.entry.pattern, self.entry.hit
        in_thought = 0
        if pattern and self.entry.shows_thought:
            in_thought = occurrences(pattern, sanitized(self.turn.thought))
        is_before = hit is not None and hit < in_thought
        self._found_in = self._thought.text if self._thought and is_before else self._shown_text
        if self._thought:
            self._thought.text.mark(pattern, hit if is_before else None)
        self._shown_text.mark(pattern, None if is_before or hit is None else hit - in_thought)

    @property
    def found_row(self) -> int:
        """The row, from the top of this view, of the place in sight."""
        found = self._found_in or self._shown_text
        above = (node for node in found.ancestors_with_self if isinstance(node, Widget))
        parts = takewhile(lambda node: node is not self, above)
        return sum(part.virtual_region.y for part in parts) + found.found_row

    @property
    def _shown_text(self) -> VirtualText[Any]:
        if self._origin_view and self.entry.shows_origins:
            return self._origin_view.text
        return self._body

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether the key of an action works here."""
        return action != "thought" or self._thought is not None

    def action_thought(self) -> None:
        """Show or hide the thought."""
        if self._thought:
            self._thought.toggle()

    def _show_growth(self) -> None:
        """Show what the turn holds beyond what is shown.

        Pieces may come late: the turn may hold their text before `append` is called.
        """
        if thought := self.turn.thought[self._shown_thought :]:
            self._shown_thought += len(thought)
            self._append_thought(thought)
        if content := self.turn.content[self._shown_content :]:
            self._shown_content += len(content)
            self._body.append(content)
        if self._thought:
            self._thought.follow()

    def _append_thought(self, text: str) -> None:
        if self._thought is None:
            self._thought = ThoughtView(self.entry.thought)
            self._mount_before(self._thought, self._body)
        self._thought.append(text)

    def _mount_before(self, widget: Widget, sibling: Widget) -> None:
        """Mount a widget, unless `compose` is still to come and will yield it."""
        if sibling.parent is self:
            self.mount(widget, before=sibling)

    def _finish(self) -> None:
        if self._thought:
            self._thought.follow()
        if isinstance(self._body, StreamingMarkdown):
            self._body.finish()

    def _title(self) -> str:
        number, count = self.entry.variant
        numbers = f" {number}/{count}" if count > 1 else ""
        return _NAMES[self.turn.role] + numbers + (", edited" if self.turn.edited else "")

    def _show_stop_reason(self) -> None:
        reason = _STOP_REASONS.get(self.turn.stop_reason or "")
        if not reason and self.turn.stop_reason and not self.turn.content:
            reason = "nothing was said"
        self._stop_reason.display = reason is not None
        self._stop_reason.update(reason or "")
