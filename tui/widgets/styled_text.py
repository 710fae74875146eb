"""Styled text: plain text of any length with styles, wrapped."""

from collections.abc import Iterator, Sequence

from textual.content import Content

from localspec_tui.markdown.line import Line, wrapped
from localspec_tui.sanitized import sanitized
from localspec_tui.widgets.virtual_text import VirtualText

_TAB = 4


class StyledText(VirtualText[Content]):
    """Each line of the source is a part; all but the last line are final."""

    def __init__(
        self, text: str = "", *, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._final: list[Content] = []
        self._last_line: list[tuple[str, str]] = []
        self._appended = [(text, "")] if text else []

    def append(self, text: str, style: str = "") -> None:
        """Add text at the end. style: such as ".name" for a component class."""
        if text:
            self._appended.append((text, style))
            self._throttle.request()

    @property
    def parts(self) -> tuple[Sequence[Content], Sequence[Content]]:
        has_last = any(text for text, _ in self._last_line)
        return self._final, [_content(self._last_line)] if has_last else []

    def take_appended(self) -> None:
        for text, style in self._appended:
            first, *others = sanitized(text).split("\n")
            self._last_line.append((first, style))
            for line in others:
                self._final.append(_content(self._last_line))
                self._last_line = [(line, style)]
        self._appended.clear()

    def layout_lines(
        self, parts: Sequence[Content], width: int, after: Content | None
    ) -> Iterator[Line]:
        for part in parts:
            yield from wrapped(part, width)


def _content(pieces: Sequence[tuple[str, str]]) -> Content:
    return Content.assemble(*pieces).simplify().expand_tabs(_TAB)
