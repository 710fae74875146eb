"""Launch: run the chat until the user quits."""

import os
import sys
from dataclasses import replace

from textual.theme import BUILTIN_THEMES

from localspec.errors import InvalidValueError
from localspec.loading.config import RuntimeConfig
from localspec_tui.app import ChatApp
from localspec_tui.archive import Archive
from localspec_tui.engine_thread import EngineThread
from localspec_tui.interpreter import prioritize_engine
from localspec_tui.launch_options import LaunchOptions
from localspec_tui.preferences import Preferences


def launch(options: LaunchOptions, archive: Archive) -> int:
    """Run the chat and return its exit code.

    Raises InvalidValueError for an unknown theme or a bad runtime option.
    """
    if options.theme and options.theme not in BUILTIN_THEMES:
        raise InvalidValueError(f"theme is {options.theme!r}; choose {', '.join(BUILTIN_THEMES)}")
    RuntimeConfig(**options.runtime)
    prioritize_engine()
    if os.environ.get("TERM") == "dumb":
        os.environ["NO_COLOR"] = "1"
    app = ChatApp(
        EngineThread(),
        archive,
        with_default_model(options, archive),
        encoding=_terminal_encoding(),
    )
    app.run()
    if app.is_loading:
        # Loading may take minutes more, and nothing is lost by ending it.
        os._exit(0)
    return app.return_code or 0


def with_default_model(options: LaunchOptions, archive: Archive) -> LaunchOptions:
    """Fill in the model: that of the resumed session, else the one that was used last."""
    if options.model:
        return options
    models = {each.key: each.model for each in archive.list()} if options.session else {}
    return replace(options, model=models.get(options.session or "") or Preferences.read().model)


def _terminal_encoding() -> str | None:
    """The encoding of the terminal; None for UTF-8, which has every character."""
    encoding: str = getattr(sys.__stderr__, "encoding", "utf-8")
    return None if encoding.lower().replace("-", "") == "utf8" else encoding
