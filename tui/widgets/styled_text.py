"""Styled text: text of any length in styles, wrapped, line breaks as they are."""

from collections.abc import Iterator, Sequence

from textual.content import Content

from localspec_tui.markdown.line import Line, wrapped
from localspec_tui.widgets.sanitized import shown
from localspec_tui.widgets.virtual_text import Paper

_TAB = 4


class StyledText(Paper[Content]):
    """Its parts are lines: all but the last are done."""

    def __init__(
        self, text: str = "", *, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._done: list[Content] = []
        self._last: list[tuple[str, str]] = []
        self._new = [(text, "")] if text else []

    def append(self, text: str, style: str = "") -> None:
        """More of it. style: such as `.name`, for a component class."""
        if text:
            self._new.append((text, style))
            self._pace.ask()

    def clear(self) -> None:
        """Begin anew."""
        self._done.clear()
        self._last.clear()
        self._new.clear()
        self.forget_layout()

    @property
    def parts(self) -> tuple[Sequence[Content], Sequence[Content]]:
        others = [_content(self._last)] if any(text for text, _ in self._last) else []
        return self._done, others

    def take(self) -> None:
        for text, style in self._new:
            first, *others = shown(text).split("\n")
            self._last.append((first, style))
            for line in others:
                self._done.append(_content(self._last))
                self._last = [(line, style)]
        self._new.clear()

    def lay(self, parts: Sequence[Content], width: int, after: Content | None) -> Iterator[Line]:
        for part in parts:
            yield from wrapped(part, width)


def _content(pieces: Sequence[tuple[str, str]]) -> Content:
    return Content.assemble(*pieces).simplify().expand_tabs(_TAB)
