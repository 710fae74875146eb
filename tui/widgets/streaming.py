"""Streaming: Markdown that is read while it is written."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from textual.content import Content
from textual.theme import Theme

from localspec_tui.markdown.blocks import Block
from localspec_tui.markdown.document import Document
from localspec_tui.markdown.highlighting import highlighted
from localspec_tui.markdown.layout import Layout
from localspec_tui.markdown.line import Line
from localspec_tui.widgets.sanitized import shown
from localspec_tui.widgets.virtual_text import Paper

_SCHEMES = ("http://", "https://", "mailto:")


class StreamingMarkdown(Paper[Block]):
    """Markdown that grows at its end; code is highlighted once it is whole."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "markdown--h1",
        "markdown--h2",
        "markdown--h3",
        "markdown--em",
        "markdown--strong",
        "markdown--s",
        "markdown--inline",
        "markdown--link",
        "markdown--code",
        "markdown--edge",
        "markdown--marker",
        "markdown--dim",
    }
    DEFAULT_CSS = """
    StreamingMarkdown {
        & > .markdown--h1 { color: $text-primary; text-style: bold underline; }
        & > .markdown--h2 { color: $text-primary; text-style: bold; }
        & > .markdown--h3 { text-style: bold italic; }
        & > .markdown--em { text-style: italic; }
        & > .markdown--strong { text-style: bold; }
        & > .markdown--s { text-style: strike; }
        & > .markdown--inline { color: $text-accent; background: $foreground 8%; }
        & > .markdown--link { text-style: underline; }
        & > .markdown--code { color: $foreground; background: $foreground 6%; }
        & > .markdown--edge { color: $primary; }
        & > .markdown--marker { color: $text-primary; }
        & > .markdown--dim { color: $foreground 60%; }
        &:ansi > .markdown--inline { background: ansi_default; }
        &:ansi > .markdown--code { background: ansi_default; }
        &:ansi > .markdown--dim { color: ansi_default; text-style: dim; }
    }
    """

    def __init__(
        self, text: str = "", *, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._document = Document()
        self._written = [text]
        self._read = 0

    @property
    def source(self) -> str:
        """All text that was appended."""
        return "".join(self._written)

    @property
    def parts(self) -> tuple[Sequence[Block], Sequence[Block]]:
        return self._document.done, self._document.open

    def append(self, text: str) -> None:
        """More of it."""
        self._written.append(text)
        self._pace.ask()

    def finish(self) -> None:
        """Nothing follows: show all of it, each block as what it is."""
        self.take()
        if self._document.finish():
            self.forget_layout()
        self.flush()

    def take(self) -> None:
        text = shown("".join(self._written[self._read :]))
        self._read = len(self._written)
        if text:
            self._document.append(text)

    def lay(self, parts: Sequence[Block], width: int, after: Block | None) -> Iterator[Line]:
        return Layout(self._highlighted).lines(parts, width, after)

    def _highlighted(self, code: str, language: str) -> Content:
        theme = self.app.current_theme
        return highlighted(code, language, ansi=theme.ansi, dark=theme.dark)

    def on_mount(self) -> None:
        super().on_mount()
        self.app.theme_changed_signal.subscribe(self, self._change_theme)

    def _change_theme(self, _theme: Theme) -> None:
        self.forget_layout()

    def action_link(self, address: str) -> None:
        """Open what a link leads to, unless it is something else than a page or a letter."""
        if address.startswith(_SCHEMES):
            self.app.open_url(address)
