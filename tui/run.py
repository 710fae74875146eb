"""Run: the chat, from its first screen to the end of the program."""

import os
import sys
from dataclasses import replace

from textual.theme import BUILTIN_THEMES

from localspec.errors import InvalidValueError
from localspec.loading.config import RuntimeConfig
from localspec_tui.app import ChatApp
from localspec_tui.archive import Archive
from localspec_tui.interpreter import favour_engine
from localspec_tui.launch_options import Start
from localspec_tui.preferences import Preferences
from localspec_tui.worker import Worker


def run(start: Start, archive: Archive) -> int:
    """The exit code. Raises InvalidValueError for a theme or runtime that makes no sense."""
    if start.theme and start.theme not in BUILTIN_THEMES:
        raise InvalidValueError(f"theme is {start.theme!r}; choose {', '.join(BUILTIN_THEMES)}")
    RuntimeConfig(**start.runtime)
    favour_engine()
    if os.environ.get("TERM") == "dumb":
        os.environ["NO_COLOR"] = "1"
    app = ChatApp(Worker(), archive, with_model(start, archive), glyphs=_less_than_unicode())
    app.run()
    if app.is_loading:
        # That may take its time, and there is nothing to lose.
        os._exit(0)
    return app.return_code or 0


def _less_than_unicode() -> str | None:
    """The encoding of the terminal, where it has not every letter."""
    encoding: str = getattr(sys.__stderr__, "encoding", "utf-8")
    return None if encoding.lower().replace("-", "") == "utf8" else encoding


def with_model(start: Start, archive: Archive) -> Start:
    """If none is named, the model of the conversation that goes on, else the one used last."""
    if start.model:
        return start
    models = {each.key: each.model for each in archive.list()} if start.session else {}
    return replace(start, model=models.get(start.session or "") or Preferences.read().model)
