"""Inline: text with emphasis, code and links."""

import re

from markdown_it.token import Token
from textual.content import Content, Span
from textual.style import Style

from localspec_tui.markdown.formulas import FORMULA

_SPACES = re.compile(r"\s+")
_STYLES = {"em": ".markdown--em", "strong": ".markdown--strong", "s": ".markdown--s"}
_CODE = ".markdown--inline"
_LINK = ".markdown--link"
_ADDRESS = ".markdown--dim"


def inline(token: Token) -> Content:
    """The text of an inline token, with styles. Line breaks stay, for verses and addresses."""
    writer = _Writer()
    for child in token.children or ():
        writer.add(child)
    return Content("".join(writer.texts), writer.spans)


class _Writer:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.spans: list[Span] = []
        self._length = 0
        # Tokens that are not closed yet, and where their text starts.
        self._open: list[tuple[Token, int]] = []

    def add(self, token: Token) -> None:
        name, _, _ = token.type.rpartition("_")
        if token.nesting > 0:
            self._open.append((token, self._length))
        elif token.nesting < 0:
            self._close(name)
        elif token.type in ("softbreak", "hardbreak"):
            self._write("\n")
        elif token.type == "code_inline":
            self._write(token.content, _CODE)
        elif token.type == FORMULA:
            self._write(token.content)
        elif token.type == "image":
            self._write(token.content or "image")
            self._write(f" ({token.attrs['src']})", _ADDRESS)
        else:
            self._write(_SPACES.sub(" ", token.content))

    def _close(self, name: str) -> None:
        token, start = self._open.pop()
        if name != "link":
            self._style(start, _STYLES[name])
            return
        address = str(token.attrs["href"])
        self._style(start, Style.from_meta({"@click": f"link({address!r})"}))
        self._style(start, _LINK)
        if token.info != "auto":
            self._write(f" ({address})", _ADDRESS)

    def _write(self, text: str, style: str = "") -> None:
        start = self._length
        self.texts.append(text)
        self._length += len(text)
        if style:
            self._style(start, style)

    def _style(self, start: int, style: str | Style) -> None:
        if start < self._length:
            self.spans.append(Span(start, self._length, style))
