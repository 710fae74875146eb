"""A terminal that is not there, with nothing on it but the widgets to be tested."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.pilot import Pilot
from textual.widget import Widget


class WidgetsApp(App[None]):
    """The widgets, one below the other. opened: addresses that were to be opened."""

    AUTO_FOCUS = None

    def __init__(self, widgets: tuple[Widget, ...]) -> None:
        super().__init__()
        self.opened: list[str] = []
        self._widgets = widgets

    def compose(self) -> ComposeResult:
        yield VerticalScroll(*self._widgets)

    def open_url(self, url: str, *, new_tab: bool = True) -> None:
        self.opened.append(url)


class Stage:
    """A running app."""

    def __init__(self, app: WidgetsApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    async def settle(self) -> None:
        """Until everything that was asked for is on the screen."""
        await self.pilot.pause()
        await self.pilot.pause()

    async def until(self, is_so: Callable[[], object]) -> None:
        """Let the app go on until something is so."""
        async with asyncio.timeout(60):
            while not is_so():
                await self.pilot.pause(0.01)

    def rows(self) -> list[str]:
        """What the screen shows."""
        return ["".join(each.text for each in row).rstrip() for row in self.segments()]

    def segments(self) -> list[list[Segment]]:
        return [[*strip] for strip in self.app.screen._compositor.render_strips()]


@asynccontextmanager
async def stage(*widgets: Widget, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Stage]:
    app = WidgetsApp(widgets)
    async with app.run_test(size=size) as pilot:
        made = Stage(app, pilot)
        await made.settle()
        yield made


def played(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """OriginSegment a test's coroutine."""
    asyncio.run(body())
