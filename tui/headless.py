"""Headless: runs the chat without a terminal and without the user's files."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from localspec_tui.app import ChatApp
from localspec_tui.archive import Archive
from localspec_tui.engine_thread import EngineThread
from localspec_tui.interpreter import prioritize_engine
from localspec_tui.launch_options import LaunchOptions

_POLL_INTERVAL = 0.02
# Seconds until what was changed last is drawn.
_DRAWING_TIME = 0.3


def use_temporary_home() -> None:
    """Ignore what this machine has measured or configured, and keep nothing of what follows."""
    os.environ["LOCALSPEC_HOME"] = tempfile.mkdtemp()


@asynccontextmanager
async def headless_chat(options: LaunchOptions, size: tuple[int, int]) -> AsyncIterator[ChatApp]:
    """A chat whose model is loaded. size: of the screen, in columns and rows."""
    prioritize_engine()
    archive = Archive(Path(tempfile.mkdtemp()) / "sessions.sqlite3")
    app = ChatApp(EngineThread(), archive, options)
    async with app.run_test(size=size):
        await wait_until_idle(app)
        yield app


async def wait_until_idle(app: ChatApp) -> None:
    """Wait until the engine thread has nothing to do, and the screen shows its last event."""
    await asyncio.sleep(_POLL_INTERVAL)
    while app.engine_thread.busy or app.engine_thread.session is None:
        await asyncio.sleep(_POLL_INTERVAL)
    # The timers of the screen may be late on busy cores.
    app.main.event_handler.poll()
    app.main.update_status()
    await asyncio.sleep(_DRAWING_TIME)
