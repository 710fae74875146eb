"""Origin view: a text whose tokens look like where they are from."""

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from localspec.speculation.rules import BONUS, CORRECTED, PLAIN
from localspec_tui.widgets.origins import Origins, Run
from localspec_tui.widgets.styled_text import StyledText
from localspec_tui.widgets.throttle import Throttle

_STYLES = {CORRECTED: ".origin--corrected", BONUS: ".origin--bonus", PLAIN: ""}
_DRAFTED = ".origin--drafted"


class OriginView(Widget):
    """Grows at its end. A legend says what the styles mean, which need no colours.

    origins: what it shows; they are its own from here on.
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
        self._pace = Throttle(self, self._show_legend)
        self._show(self.origins.runs)

    def compose(self) -> ComposeResult:
        yield self._legend
        yield self._text

    def on_mount(self) -> None:
        self._show_legend()

    def set_runs(self, runs: Iterable[Run]) -> None:
        """Show these instead."""
        self.origins = Origins.of(runs)
        self._text.clear()
        self._show(self.origins.runs)

    def append(self, text: str, origin: str) -> None:
        """One more token; its text may be empty."""
        self.origins.append(text, origin)
        self._show([(text, origin)])

    def finish(self, rest: str = "") -> None:
        """Show all of it now. rest: what was held back until the end."""
        self.origins.append_rest(rest)
        if rest:
            self._show([(rest, self.origins.runs[-1][1])])
        self._text.flush()
        self._show_legend()

    def _show(self, runs: Iterable[Run]) -> None:
        for text, origin in runs:
            self._text.append(text, _style(origin))
        self._pace.ask()

    def _show_legend(self) -> None:
        self._legend.update(Content(" · ").join(map(self._named, self.origins.names)))

    def _named(self, origin: str) -> Content:
        count = self.origins.counts[origin]
        number = f" {count:,}" if count else ""
        return Content.assemble((origin, _style(origin)), number)


def _style(origin: str) -> str:
    """One for all drafters."""
    return _STYLES.get(origin, _DRAFTED)
