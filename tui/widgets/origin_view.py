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

    segments: the beginning. text: the widget that shows it.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = _CLASSES
    DEFAULT_CSS = f"OriginView {{ width: 1fr; height: auto; {_CSS} }}"

    def __init__(self, segments: Iterable[tuple[str, str]] = (), *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.text = StyledText()
        for text, origin in segments:
            self.append(text, origin)

    def compose(self) -> ComposeResult:
        yield self.text

    def append(self, text: str, origin: str) -> None:
        """Add a text of one origin; it may be empty."""
        self.text.append(text, _style(origin))

    def finish(self) -> None:
        """Show all text now."""
        self.text.flush()


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
