"""Turn view: one message."""

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from localspec.conversation.events import Ended, Piece
from localspec.conversation.turns import Turn
from localspec_tui.widgets.origin_view import OriginView
from localspec_tui.widgets.origins import Origins, Run
from localspec_tui.widgets.single_layout import OnceLaid
from localspec_tui.widgets.streaming import StreamingMarkdown
from localspec_tui.widgets.styled_text import StyledText
from localspec_tui.widgets.thought import Thought

_NAMES = {"user": "You", "assistant": "Answer", "system": "System", "tool": "Tool"}
_MARKS = {
    "cancelled": "stopped",
    "interrupted": "interrupted",
    "length": "cut off: as long as it may be",
    "context": "cut off: the context is full",
}


class TurnView(OnceLaid, can_focus=True):
    """Shows what a turn holds. While that grows, `append` and `end` are told.

    variant: which of how many it is, from 1. runs: where its text is from, as far as it is there.
    markdown: whether answers are; else they are shown as they are written.
    """

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
        & > #head { height: 1; color: $foreground 60%; }
        & > #mark { height: 1; color: $text-warning; text-style: italic; }
        &:ansi > #head { color: ansi_default; text-style: dim; }
        &.user { background: $foreground 5%; }
        &.user:ansi { background: ansi_default; }
        &.user > #head { color: $text-primary; text-style: bold; }
    }
    """

    def __init__(
        self,
        turn: Turn,
        *,
        variant: tuple[int, int] = (1, 1),
        runs: Iterable[Run] = (),
        markdown: bool = True,
    ) -> None:
        super().__init__(classes=turn.role)
        self.turn = turn
        self._variant = variant
        self._origins = Origins.of(runs)
        self._origin_view: OriginView | None = None
        self._wants_origins = False
        self._thought: Thought | None = None
        markdown = markdown and turn.role == "assistant"
        self._body = StreamingMarkdown() if markdown else StyledText()
        self._mark = Static(id="mark", markup=False)
        # Letters of the turn that are shown, and tokens that were heard of.
        self._thought_shown = self._said_shown = self._tokens = 0
        if self._is_growing:
            self._catch_up()
        else:
            self._thought = Thought(turn.thought) if turn.thought else None
            self._body.append(turn.content)
            self._thought_shown, self._said_shown = len(turn.thought), len(turn.content)

    def compose(self) -> ComposeResult:
        yield Static(Content(self._head()), id="head")
        if self._thought:
            yield self._thought
        yield self._body
        if self._origin_view:
            yield self._origin_view
        yield self._mark

    def on_mount(self) -> None:
        if not self._is_growing:
            self._finish()
        self._show_mark()

    def append(self, piece: Piece) -> None:
        """A token came, which the turn holds already."""
        self._tokens += 1
        origins = self._origin_view or self._origins
        origins.append(piece.said, piece.token.origin)
        if self._wants_origins and not self._origin_view:
            self.show_origins(True)
        self._catch_up()

    def end(self, ended: Ended) -> None:
        """Nothing more comes."""
        self._catch_up()
        if self._origin_view:
            self._origin_view.finish(ended.said)
        else:
            self._origins.append_rest(ended.said)
        self._finish()
        self._show_mark()

    def show_origins(self, shown: bool) -> None:
        """Show where its tokens are from, as far as that is known, or the text as it is meant."""
        self._wants_origins = shown
        if shown and not self._origin_view and self._origins.names:
            self._origin_view = OriginView(self._origins)
            self._mount_late(self._origin_view, before=self._mark)
        if self._origin_view:
            self._origin_view.display = shown
            self._body.display = not shown

    @property
    def has_variants(self) -> bool:
        """Whether there are others in its place."""
        return self._variant[1] > 1

    @property
    def drafter(self) -> str | None:
        """Which one wrote the latest of the tokens that drafters wrote."""
        return self._origins.latest_drafter

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key does anything here."""
        return action != "thought" or self._thought is not None

    def action_thought(self) -> None:
        """Show or hide what was thought."""
        if self._thought:
            self._thought.toggle()

    @property
    def _is_growing(self) -> bool:
        return self.turn.role == "assistant" and self.turn.stop_reason is None

    def _catch_up(self) -> None:
        """Show what the turn holds by now: pieces may come late, or have come before this view."""
        if thought := self.turn.thought[self._thought_shown :]:
            self._thought_shown += len(thought)
            self._think(thought)
        if said := self.turn.content[self._said_shown :]:
            self._said_shown += len(said)
            if self._thought:
                self._thought.end()
            self._body.append(said)

    def _think(self, text: str) -> None:
        if self._thought is None:
            self._thought = Thought()
            self._mount_late(self._thought, before=self._body)
        self._thought.append(text, self._tokens)

    def _mount_late(self, widget: Widget, *, before: Widget) -> None:
        """Unless `compose` is still to come, and does it."""
        if before.parent is self:
            self.mount(widget, before=before)

    def _finish(self) -> None:
        if self._thought:
            self._thought.end()
        if isinstance(self._body, StreamingMarkdown):
            self._body.finish()

    def _head(self) -> str:
        number, count = self._variant
        return _NAMES[self.turn.role] + (f" {number}/{count}" if count > 1 else "")

    def _show_mark(self) -> None:
        mark = _MARKS.get(self.turn.stop_reason or "")
        if not mark and self.turn.stop_reason and not self.turn.content:
            mark = "nothing was said"
        self._mark.display = mark is not None
        self._mark.update(mark or "")
