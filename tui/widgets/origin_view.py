"""Origin view: a text in which the style of each token shows its origin."""

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from localspec.speculation.rules import BONUS, CORRECTED, PLAIN
from localspec_tui.origins import Origins, OriginSegment
from localspec_tui.widgets.styled_text import StyledText
from localspec_tui.widgets.throttle import Throttle

_TARGET_STYLES = {CORRECTED: ".origin--corrected", BONUS: ".origin--bonus", PLAIN: ""}
_DRAFTED_STYLE = ".origin--drafted"


class OriginView(Widget):
    """Grows at its end. The styles differ without colours too; a legend explains them.

    origins: what to show. `append` changes this object.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "origin--drafted",
        "origin--corrected",
        "origin--bonus",
    }
    DEFAULT_CSS = """
    OriginView {
        width: 1fr;
        height: auto;
        & > .origin--drafted { color: $text-success; text-style: bold; }
        & > .origin--corrected { color: $text-warning; text-style: underline; }
        & > .origin--bonus { color: $text-secondary; text-style: italic; }
        & > #legend { color: $foreground 60%; height: auto; margin: 0 0 1 0; }
        &:ansi > #legend { color: ansi_default; }
    }
    """

    def __init__(self, origins: Origins | None = None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.origins = origins or Origins()
        self._text = StyledText()
        self._legend = Static(id="legend")
        self._throttle = Throttle(self, self._show_legend)
        self._append_segments(self.origins.segments)

    def compose(self) -> ComposeResult:
        yield self._legend
        yield self._text

    def on_mount(self) -> None:
        self._show_legend()

    def set_segments(self, segments: Iterable[OriginSegment]) -> None:
        """Show another text."""
        self.origins = Origins.of(segments)
        self._text.clear()
        self._append_segments(self.origins.segments)

    def append(self, text: str, origin: str) -> None:
        """Add one token; its text may be empty."""
        self.origins.append(text, origin)
        self._append_segments([(text, origin)])

    def finish(self, rest: str = "") -> None:
        """Show all text now. rest: text that was held back until the end."""
        self.origins.append_rest(rest)
        if rest:
            self._append_segments([(rest, self.origins.segments[-1].origin)])
        self._text.flush()
        self._show_legend()

    def _append_segments(self, segments: Iterable[tuple[str, str]]) -> None:
        for text, origin in segments:
            self._text.append(text, _style(origin))
        self._throttle.request()

    def _show_legend(self) -> None:
        self._legend.update(Content(" · ").join(map(self._legend_entry, self.origins.names)))

    def _legend_entry(self, origin: str) -> Content:
        count = self.origins.counts[origin]
        number = f" {count:,}" if count else ""
        return Content.assemble((origin, _style(origin)), number)


def _style(origin: str) -> str:
    """The style of an origin. All drafters share one."""
    return _TARGET_STYLES.get(origin, _DRAFTED_STYLE)
