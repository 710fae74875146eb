"""Runs the chat without a terminal, and presses its keys."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fakes.scripted import Script
from rich.segment import Segment
from textual.app import App
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import OptionList

from localspec.models import registry
from localspec_tui.app import ChatApp
from localspec_tui.archive import Archive
from localspec_tui.engine_thread import EngineThread
from localspec_tui.launch_options import LaunchOptions
from localspec_tui.screens.chat import ChatScreen
from localspec_tui.widgets.note_entry import Note

TIMEOUT = 60.0
_STEP = 0.01


class ChatPilot:
    """A running chat."""

    def __init__(self, app: ChatApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def screen(self) -> ChatScreen:
        return self.app.main

    async def until(self, predicate: Callable[[], object]) -> None:
        """Wait until the predicate is true."""
        await wait_until(self.pilot, predicate)

    async def wait_idle(self) -> None:
        """Wait until the engine thread has nothing to do, and the screen shows its events."""
        outbox = self.screen.outbox
        await self.until(
            lambda: (
                not self.app.engine_thread.busy
                and not self.app.engine_thread._events
                and (not outbox.queued or outbox.held)
            )
        )
        # The timers of the screen would do this a moment later.
        self.screen.event_handler.poll()
        self.screen.update_status()
        await self.pilot.pause()

    async def settle(self) -> None:
        """Wait until all that was changed is laid out and drawn, however late that comes."""
        await settle(self.pilot, self.screen, lambda: self.screen.view._is_settling)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def send(self, text: str) -> None:
        """Send a message."""
        self.screen.composer.set_text(text)
        await self.press("enter")

    async def ask(self, text: str) -> None:
        """Send a message, and wait for the whole answer."""
        await self.send(text)
        await self.wait_idle()

    @property
    def contents(self) -> list[str]:
        """The content of each turn of the active branch."""
        session = self.app.engine_thread.session
        return [turn.content for turn in session.turns] if session else []

    @property
    def notes(self) -> list[str]:
        return [str(note.content) for note in self.screen.view.query(Note)]

    @property
    def options(self) -> list[str]:
        """The first line of each option in the list of the top screen."""
        found = self.app.screen.query_one(OptionList).options
        return [str(option.prompt).split("\n")[0] for option in found]

    def is_on_top(self, screen: type[Screen[Any]]) -> bool:
        """Whether the top screen is of this class, and drawn."""
        return isinstance(self.app.screen, screen) and bool(self.text)

    @property
    def text(self) -> str:
        """All text on the screen."""
        return "\n".join(screen_rows(self.app))


def screen_segments(app: App[Any]) -> list[list[Segment]]:
    """The styled segments of each row of the screen."""
    return [[*strip] for strip in app.screen._compositor.render_strips()]


def screen_rows(app: App[Any]) -> list[str]:
    """The text of each row of the screen."""
    return ["".join(each.text for each in row).rstrip() for row in screen_segments(app)]


async def wait_until(pilot: Pilot[Any], predicate: Callable[[], object]) -> None:
    """Run the app until the predicate is true. Raises TimeoutError after a minute."""
    async with asyncio.timeout(TIMEOUT):
        while not predicate():
            await pilot.pause(_STEP)


async def settle(
    pilot: Pilot[Any], screen: Screen[Any], is_changing: Callable[[], bool] = lambda: False
) -> None:
    """Run the app until no layout and no drawing is due, twice. Raises TimeoutError."""
    quiet = 0
    async with asyncio.timeout(TIMEOUT):
        while quiet < 2:
            await pilot.pause()
            is_due = screen._layout_required or screen._scroll_required or screen._dirty_widgets
            quiet = 0 if is_due or screen._callbacks or is_changing() else quiet + 1


@asynccontextmanager
async def running_chat(
    script: Script,
    folder: Path,
    *,
    size: tuple[int, int] = (80, 24),
    encoding: str | None = None,
    latest: bool = False,
    bundled: bool = False,
    loaded: bool = True,
    notifications: bool = False,
    **options: Any,
) -> AsyncIterator[ChatPilot]:
    """A chat with a scripted model. folder: of its sessions.

    latest: resume the latest session. bundled: the model has the name of the bundled pair.
    loaded: wait until the model is loaded. notifications: whether they are shown. options: of
    `LaunchOptions`.
    """
    archive = Archive(folder / "sessions.sqlite3")
    model = str(registry.bundled().target) if bundled else "scripted"
    session = archive.latest() if latest else None
    launch_options = LaunchOptions(**{"model": model, "session": session, **options})
    app = ChatApp(EngineThread(script.load), archive, launch_options, encoding=encoding)
    app.animation_level = "none"
    async with app.run_test(size=size, notifications=notifications) as pilot:
        chat = ChatPilot(app, pilot)
        if loaded:
            await chat.until(lambda: chat.screen.event_handler.state != "loading")
            await chat.wait_idle()
        yield chat
