"""Thought view: what a model thought before its answer, folded up once it has answered."""

from dataclasses import dataclass

from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from localspec.utils.running_clock import running_clock
from localspec_tui.widgets.styled_text import StyledText
from localspec_tui.widgets.throttle import Throttle


@dataclass(slots=True)
class Thought:
    """How the reasoning of an answer is shown.

    is_open: whether its text is shown below its summary. tokens: how many there are. began: when
    the first one came; None if that was not seen. seconds: how long it took; None until its end.
    """

    is_open: bool = False
    tokens: int = 0
    began: float | None = None
    seconds: float | None = None

    def grow(self, tokens: int) -> None:
        """Show the text from the first token on. tokens: how many there are now."""
        self.tokens = tokens
        if self.began is None:
            self.began, self.is_open = running_clock(), True

    def end(self) -> None:
        """Fold up the text if it was being written."""
        if self.began is not None and self.seconds is None:
            self.seconds, self.is_open = running_clock() - self.began, False

    def summary(self, lines: int) -> str:
        """How long the text is, in one line. lines: of the text."""
        if self.began is None:
            return f"thought, {lines:,} line{'s' if lines != 1 else ''}"
        verb = "thinking" if self.seconds is None else "thought"
        seconds = running_clock() - self.began if self.seconds is None else self.seconds
        return f"{verb} for {seconds:.1f} s, {self.tokens:,} tokens"


class ThoughtView(Widget):
    """thought: says what is shown. text: the widget below the summary."""

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

    def __init__(self, thought: Thought) -> None:
        super().__init__()
        self._thought = thought
        self._lines = 1
        self._summary = Static(id="summary", markup=False)
        self.text = StyledText()
        self.text.display = thought.is_open
        self._throttle = Throttle(self, self._show_summary)

    def compose(self) -> ComposeResult:
        yield self._summary
        yield self.text

    def on_mount(self) -> None:
        self._show_summary()

    def append(self, text: str) -> None:
        """Add text at the end."""
        self._lines += text.count("\n")
        self.text.append(text)
        self._throttle.request()

    def follow(self) -> None:
        """Show or hide the text, as the thought says now."""
        if self.text.display != self._thought.is_open:
            self.text.flush()
            self.text.display = self._thought.is_open
            self._show_summary()
            self.post_message(self.Toggled())

    def toggle(self) -> None:
        """Show or hide the text."""
        self._thought.is_open = not self._thought.is_open
        self.follow()

    def on_click(self) -> None:
        self.toggle()

    def _show_summary(self) -> None:
        arrow = "▼" if self._thought.is_open else "▶"
        self._summary.update(Content(f"{arrow} {self._thought.summary(self._lines)}"))
