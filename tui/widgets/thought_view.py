"""Thought view: what a model thought before its answer, folded up once it has answered."""

from time import monotonic

from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from localspec_tui.widgets.styled_text import StyledText
from localspec_tui.widgets.throttle import Throttle


class ThoughtView(Widget):
    """text: a finished thought; empty for one that is being written."""

    DEFAULT_CSS = """
    ThoughtView {
        width: 1fr;
        height: auto;
        & > #summary { color: $foreground 60%; text-style: italic; height: 1; }
        & > StyledText { color: $foreground 60%; padding: 0 0 0 2; margin: 0 0 1 0; }
        &:ansi > #summary { color: ansi_default; text-style: dim italic; }
        &:ansi > StyledText { color: ansi_default; text-style: dim; }
    }
    """

    class Toggled(Message):
        """The text is shown now, or it is not shown any more."""

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self._started: float | None = None
        self._seconds: float | None = None
        self._tokens = 0
        self._lines = text.count("\n") + 1
        self._summary = Static(id="summary", markup=False)
        self.text = StyledText(text)
        self.text.display = False
        self._throttle = Throttle(self, self._show_summary)

    def compose(self) -> ComposeResult:
        yield self._summary
        yield self.text

    def on_mount(self) -> None:
        self._show_summary()

    @property
    def is_open(self) -> bool:
        """Whether the text is shown below the summary."""
        return self.text.display

    @property
    def summary(self) -> str:
        """How long the thought is, in one line."""
        if self._started is None:
            return f"thought, {self._lines:,} line{'s' if self._lines != 1 else ''}"
        verb = "thinking" if self._seconds is None else "thought"
        seconds = monotonic() - self._started if self._seconds is None else self._seconds
        return f"{verb} for {seconds:.1f} s, {self._tokens:,} tokens"

    def append(self, text: str, tokens: int) -> None:
        """Add text at the end. tokens: how many tokens the whole thought has."""
        if self._started is None:
            self._started = monotonic()
            self._show_text(True)
        self._tokens = tokens
        self.text.append(text)
        self._throttle.request()

    def end(self) -> None:
        """Fold up a thought that was being written."""
        if self._started is not None and self._seconds is None:
            self._seconds = monotonic() - self._started
            self.text.flush()
            self._show_text(False)

    def toggle(self) -> None:
        """Show or hide the text."""
        self._show_text(not self.text.display)

    def on_click(self) -> None:
        self.toggle()

    def _show_text(self, on: bool) -> None:
        self.text.display = on
        self._show_summary()
        self.post_message(self.Toggled())

    def _show_summary(self) -> None:
        arrow = "▼" if self.is_open else "▶"
        self._summary.update(Content(f"{arrow} {self.summary}"))
