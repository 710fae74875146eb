"""Streaming Markdown: a widget for Markdown that is still being written."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from textual.content import Content
from textual.theme import Theme

from localspec_tui.markdown.blocks import Block
from localspec_tui.markdown.document import Document
from localspec_tui.markdown.highlighting import highlighted
from localspec_tui.markdown.layout import BlockLayout
from localspec_tui.markdown.line import Line
from localspec_tui.sanitized import sanitized
from localspec_tui.widgets.virtual_text import VirtualText

_LINK_SCHEMES = ("http://", "https://", "mailto:")


class StreamingMarkdown(VirtualText[Block]):
    """Markdown that grows at its end. A code block is highlighted once it is closed."""

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
        self._pieces = [text]
        self._pieces_taken = 0

    @property
    def source(self) -> str:
        """All text that was appended."""
        return "".join(self._pieces)

    @property
    def parts(self) -> tuple[Sequence[Block], Sequence[Block]]:
        return self._document.final, self._document.open

    def append(self, text: str) -> None:
        """Add text at the end."""
        self._pieces.append(text)
        self._throttle.request()

    def finish(self) -> None:
        """Show all of it now; nothing will be appended."""
        self.take_appended()
        if self._document.finish():
            self.invalidate_layout()
        self.flush()

    def take_appended(self) -> None:
        text = sanitized("".join(self._pieces[self._pieces_taken :]))
        self._pieces_taken = len(self._pieces)
        if text:
            self._document.append(text)

    def layout_lines(
        self, parts: Sequence[Block], width: int, after: Block | None
    ) -> Iterator[Line]:
        return BlockLayout(self._highlighted).lines(parts, width, after)

    def _highlighted(self, code: str, language: str) -> Content:
        theme = self.app.current_theme
        return highlighted(code, language, ansi=theme.ansi, dark=theme.dark)

    def on_mount(self) -> None:
        super().on_mount()
        self.app.theme_changed_signal.subscribe(self, self._change_theme)

    def on_unmount(self) -> None:
        # The signal holds a widget that subscribes for as long as the theme stays.
        self.app.theme_changed_signal.unsubscribe(self)

    def _change_theme(self, _theme: Theme) -> None:
        self.invalidate_layout()

    def action_link(self, address: str) -> None:
        """Open a link to a web page or a mail address; other links do nothing."""
        if address.startswith(_LINK_SCHEMES):
            self.app.open_url(address)
