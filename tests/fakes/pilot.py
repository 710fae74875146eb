"""A chat on a terminal that is not there, driven by keys."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fakes.scripted import Script
from textual.pilot import Pilot

from localspec.models import registry
from localspec_tui.app import ChatApp
from localspec_tui.archive import Archive
from localspec_tui.engine_thread import EngineThread
from localspec_tui.launch_options import LaunchOptions
from localspec_tui.screens.chat import ChatScreen
from localspec_tui.widgets.conversation_view import Note

PATIENCE = 60.0
_STEP = 0.01


class Chat:
    """A running chat. keys: press them one after the other."""

    def __init__(self, app: ChatApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def screen(self) -> ChatScreen:
        return self.app.main

    async def until(self, predicate: Callable[[], object]) -> None:
        """Wait until something is so."""
        await wait_until(self.pilot, predicate)

    async def ready(self) -> None:
        """Wait until nothing is being done, and all that happened is on the screen."""
        await self.until(
            lambda: not self.app.engine_thread.busy and not self.app.engine_thread._events
        )
        # What timers would do a moment later.
        self.screen.event_handler.poll()
        self.screen.update_status()
        await self.pilot.pause()

    async def keys(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def say(self, text: str) -> None:
        """Write a message and send it."""
        self.screen.composer.set_text(text)
        await self.keys("enter")

    async def ask(self, text: str) -> None:
        """Say something, and wait for the whole answer."""
        await self.say(text)
        await self.ready()

    @property
    def contents(self) -> list[str]:
        """What was said, on the branch that goes on."""
        session = self.app.engine_thread.session
        return [turn.content for turn in session.turns] if session else []

    @property
    def notes(self) -> list[str]:
        return [str(note.content) for note in self.screen.view.query(Note)]

    @property
    def text(self) -> str:
        """All that is on the screen."""
        return "\n".join(lines(self.app))


def lines(app: ChatApp) -> list[str]:
    """The rows of the screen, as text."""
    strips = app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips]


async def wait_until(pilot: Pilot[Any], predicate: Callable[[], object]) -> None:
    """Let the app go on until something is so. Raises TimeoutError if it never is."""
    async with asyncio.timeout(PATIENCE):
        while not predicate():
            await pilot.pause(_STEP)


@asynccontextmanager
async def chatting(
    script: Script,
    folder: Path,
    *,
    size: tuple[int, int] = (80, 24),
    encoding: str | None = None,
    latest: bool = False,
    bundled: bool = False,
    loaded: bool = True,
    **start: Any,
) -> AsyncIterator[Chat]:
    """A chat with a scripted model. folder: where its sessions are.

    latest: go on with the latest of them. bundled: the model is the one that comes along.
    loaded: wait until it is there. start: as for `LaunchOptions`.
    """
    archive = Archive(folder / "sessions.sqlite3")
    model = str(registry.bundled().target) if bundled else "scripted"
    session = archive.latest() if latest else None
    given = {"model": model, "session": session, **start}
    app = ChatApp(EngineThread(script.load), archive, LaunchOptions(**given), encoding=encoding)
    app.animation_level = "none"
    async with app.run_test(size=size) as pilot:
        chat = Chat(app, pilot)
        if loaded:
            await chat.until(lambda: chat.screen.event_handler.state != "loading")
            await chat.ready()
        yield chat


def played(body: Coroutine[Any, Any, None]) -> None:
    """OriginSegment a test that is a coroutine."""
    asyncio.run(body)
