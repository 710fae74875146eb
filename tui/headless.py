"""Unattended: the chat on a terminal that is not there, with nothing kept of it."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from localspec_tui.app import ChatApp
from localspec_tui.archive import Archive
from localspec_tui.interpreter import favour_engine
from localspec_tui.launch_options import Start
from localspec_tui.worker import Worker

_PAUSE = 0.02
# Until what happened last is on the screen too.
_SHOWN = 0.3


def forget_home() -> None:
    """Nothing that was learnt or set on this machine, nor anything to be kept, from here on."""
    os.environ["LOCALSPEC_HOME"] = tempfile.mkdtemp()


@asynccontextmanager
async def unattended(start: Start, size: tuple[int, int]) -> AsyncIterator[ChatApp]:
    """A chat whose model is loaded. size: of the screen, in columns and rows."""
    favour_engine()
    archive = Archive(Path(tempfile.mkdtemp()) / "sessions.sqlite3")
    app = ChatApp(Worker(), archive, start)
    async with app.run_test(size=size):
        await rest(app)
        yield app


async def rest(app: ChatApp) -> None:
    """Until the engine has nothing to do, and the screen shows it."""
    await asyncio.sleep(_PAUSE)
    while app.worker.busy or app.worker.session is None:
        await asyncio.sleep(_PAUSE)
    await asyncio.sleep(_SHOWN)
