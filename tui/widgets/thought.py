"""Thought: what a model thought before it answered, folded up once it has."""

from time import monotonic

from textual.app import ComposeResult
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from localspec_tui.widgets.styled_text import StyledText
from localspec_tui.widgets.throttle import Throttle


class Thought(Widget):
    """text: what was thought already."""

    DEFAULT_CSS = """
    Thought {
        width: 1fr;
        height: auto;
        & > #summary { color: $foreground 60%; text-style: italic; height: 1; }
        & > StyledText { color: $foreground 60%; padding: 0 0 0 2; margin: 0 0 1 0; }
        &:ansi > #summary { color: ansi_default; text-style: dim italic; }
        &:ansi > StyledText { color: ansi_default; text-style: dim; }
    }
    """

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self._began: float | None = None
        self._took: float | None = None
        self._tokens = 0
        self._lines = text.count("\n") + 1
        self._summary = Static(id="summary", markup=False)
        self._text = StyledText(text)
        self._text.display = False
        self._pace = Throttle(self, self._show)

    def compose(self) -> ComposeResult:
        yield self._summary
        yield self._text

    def on_mount(self) -> None:
        self._show()

    @property
    def is_open(self) -> bool:
        """Whether all of it is shown."""
        return self._text.display

    @property
    def summary(self) -> str:
        """It in a line."""
        if self._began is None:
            return f"thought, {self._lines:,} line{'s' if self._lines != 1 else ''}"
        doing = "thinking" if self._took is None else "thought"
        seconds = monotonic() - self._began if self._took is None else self._took
        return f"{doing} for {seconds:.1f} s, {self._tokens:,} tokens"

    def append(self, text: str, tokens: int) -> None:
        """More of it. tokens: how many it is by now."""
        if self._began is None:
            self._began = monotonic()
            self._text.display = True
        self._tokens = tokens
        self._text.append(text)
        self._pace.ask()

    def end(self) -> None:
        """It was thought to its end: fold it up."""
        if self._began is not None and self._took is None:
            self._took = monotonic() - self._began
            self._text.flush()
            self._text.display = False
            self._show()

    def toggle(self) -> None:
        """Show or hide what was thought."""
        self._text.display = not self._text.display
        self._show()

    def on_click(self) -> None:
        self.toggle()

    def _show(self) -> None:
        mark = "▼" if self.is_open else "▶"
        self._summary.update(Content(f"{mark} {self.summary}"))
