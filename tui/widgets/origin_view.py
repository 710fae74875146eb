"""Origin view: a text in which the style of each token shows its origin."""

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.content import Content
from textual.widget import Widget

from localspec.speculation.rules import BONUS, CORRECTED, PLAIN
from localspec_tui.origins import EDITED, Origins
from localspec_tui.widgets.styled_text import StyledText

_STYLES = {
    CORRECTED: ".origin--corrected",
    BONUS: ".origin--bonus",
    PLAIN: "",
    EDITED: ".origin--edited",
}
_DRAFTED_STYLE = ".origin--drafted"


_CLASSES = {"origin--drafted", "origin--corrected", "origin--bonus", "origin--edited"}
_CSS = """
        & > .origin--drafted { color: $text-success; text-style: bold; }
        & > .origin--corrected { color: $text-warning; text-style: underline; }
        & > .origin--bonus { color: $text-secondary; text-style: italic; }
        & > .origin--edited { background: $foreground 15%; text-style: underline italic; }
        &:ansi > .origin--edited { background: ansi_default; }
"""


class OriginView(Widget):
    """Grows at its end. The styles differ without colours too; an OriginLegend explains them.

    origins: what to show. `append` changes this object. text: the widget that shows it.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = _CLASSES
    DEFAULT_CSS = f"OriginView {{ width: 1fr; height: auto; {_CSS} }}"

    def __init__(self, origins: Origins | None = None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.origins = origins or Origins()
        self.text = StyledText()
        self._append_segments(self.origins.segments)

    def compose(self) -> ComposeResult:
        yield self.text

    def append(self, text: str, origin: str) -> None:
        """Add one token; its text may be empty."""
        self.origins.append(text, origin)
        self._append_segments([(text, origin)])

    def finish(self, rest: str = "") -> None:
        """Show all text now. rest: text that was held back until the end."""
        self.origins.append_rest(rest)
        if rest:
            self._append_segments([(rest, self.origins.segments[-1].origin)])
        self.text.flush()

    def _append_segments(self, segments: Iterable[tuple[str, str]]) -> None:
        for text, origin in segments:
            self.text.append(text, _style(origin))


class OriginLegend(Widget):
    """Names the origins of one text in their styles, with their counts. It stays in sight."""

    COMPONENT_CLASSES: ClassVar[set[str]] = _CLASSES
    DEFAULT_CSS = f"""
    OriginLegend {{
        width: 1fr;
        height: auto;
        margin: 0 2;
        color: $foreground 60%;
        {_CSS}
        &:ansi {{ color: ansi_default; }}
    }}
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._entries: list[tuple[str, int]] = []

    def show(self, origins: Origins) -> None:
        """Explain the styles of this text."""
        entries = [(name, origins.counts[name]) for name in origins.names]
        if entries != self._entries:
            self._entries = entries
            self.refresh(layout=True)

    def render(self) -> Content:
        return Content(" · ").join(
            Content.assemble((name, _style(name)), f" {count:,}" if count else "")
            for name, count in self._entries
        )


def _style(origin: str) -> str:
    """The style of an origin. All drafters share one."""
    return _STYLES.get(origin, _DRAFTED_STYLE)
