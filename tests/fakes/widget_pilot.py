"""Shows single widgets in an app without a terminal."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fakes.pilot import screen_rows, screen_segments, settle, wait_until
from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.pilot import Pilot
from textual.widget import Widget


class WidgetsApp(App[None]):
    """The widgets, one below the other. opened: addresses passed to `open_url`."""

    AUTO_FOCUS = None

    def __init__(self, widgets: tuple[Widget, ...]) -> None:
        super().__init__()
        self.opened: list[str] = []
        self._widgets = widgets

    def compose(self) -> ComposeResult:
        yield VerticalScroll(*self._widgets)

    def open_url(self, url: str, *, new_tab: bool = True) -> None:
        self.opened.append(url)


class WidgetPilot:
    """A running app with the widgets."""

    def __init__(self, app: WidgetsApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    async def settle(self) -> None:
        """Wait until the screen shows everything."""
        await settle(self.pilot, self.app.screen)

    async def until(self, predicate: Callable[[], object]) -> None:
        """Wait until the predicate is true."""
        await wait_until(self.pilot, predicate)

    def rows(self) -> list[str]:
        """The text of each row of the screen."""
        return screen_rows(self.app)

    def segments(self) -> list[list[Segment]]:
        """The styled segments of each row of the screen."""
        return screen_segments(self.app)


@asynccontextmanager
async def showing(*widgets: Widget, size: tuple[int, int] = (80, 24)) -> AsyncIterator[WidgetPilot]:
    """Run an app that shows the widgets. size: of the screen, in columns and rows."""
    app = WidgetsApp(widgets)
    async with app.run_test(size=size) as pilot:
        widget_pilot = WidgetPilot(app, pilot)
        await widget_pilot.settle()
        yield widget_pilot
