"""Launch: run the chat until the user quits."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from textual.theme import BUILTIN_THEMES

from localspec.errors import InvalidValueError
from localspec.loading.config import RuntimeConfig
from localspec.utils.last_words import before_abort
from localspec_tui import notes
from localspec_tui.app import ChatApp
from localspec_tui.archive import Archive
from localspec_tui.default_options import with_defaults
from localspec_tui.engine_thread import EngineThread
from localspec_tui.interpreter import prioritize_engine
from localspec_tui.keeping import wait_until_kept
from localspec_tui.late_input import expect
from localspec_tui.launch_options import LaunchOptions
from localspec_tui.lost_terminal import is_stuck, outlive_terminal
from localspec_tui.preferences import Preferences
from localspec_tui.terminal_background import background, typed_before


def launch(options: LaunchOptions, archive: Archive) -> int:
    """Run the chat and return its exit code.

    Raises InvalidValueError for an unknown theme or a bad runtime option.
    """
    if options.theme and options.theme not in BUILTIN_THEMES:
        raise InvalidValueError(f"theme is {options.theme!r}; choose {', '.join(BUILTIN_THEMES)}")
    RuntimeConfig.of(**options.runtime)
    prioritize_engine()
    if os.environ.get("TERM") == "dumb":
        os.environ["NO_COLOR"] = "1"
    outlive_terminal()
    app = ChatApp(
        EngineThread(keeps=True) if options.keep else EngineThread(),
        archive,
        _with_background(with_defaults(options, archive)),
        encoding=_terminal_encoding(),
    )

    def write_last_words(unsent: Sequence[str], edit: str = "", unkept: str | None = None) -> None:
        if options.private:
            return
        saved = app.autosave
        lines = notes.last_words(
            unsent, saved.kept, saved.failure, saved.lost, edit=edit, unkept=unkept
        )
        # The terminal may be closed.
        with suppress(OSError):
            sys.stderr.write("".join(f"{line}\n" for line in lines))

    def restore(_reason: str) -> None:
        """Give the terminal back, which otherwise stays what the chat has made of it."""
        if driver := app._driver:
            # The rest leaves that out where it runs in another thread.
            getattr(driver, "_disable_mouse_support", lambda: None)()
            driver.stop_application_mode()
            driver.close()
        # Textual shows on its screen what is written meanwhile.
        sys.stdout, sys.stderr = output, errors
        write_last_words(app.main.outbox.unsent)

    output, errors = sys.stdout, sys.stderr
    with before_abort(restore):
        app.run()
    unkept = None
    if not app.is_loading:
        unkept = wait_until_kept(app.engine_thread, is_shown=not is_stuck())
    if is_stuck():
        # So would be who writes to it, and Python at its end. All is saved.
        os._exit(app.return_code or 0)
    unsent = [*app.main.outbox.unsent, *([app.lost_text] if app.lost_text else [])]
    write_last_words(unsent, app.lost_edit, unkept)
    if app.is_loading:
        # Loading may take minutes more, and nothing is lost by ending it.
        os._exit(0)
    return app.return_code or 0


def _with_background(options: LaunchOptions) -> LaunchOptions:
    """Ask for the background of the terminal, unless the colours are the user's choice or its own.

    What comes late, or was typed before or meanwhile, is for Textual.
    """
    is_chosen = any([options.theme, *map(os.environ.get, ("NO_COLOR", "TEXTUAL_THEME"))])
    if is_chosen or Preferences.read().theme in BUILTIN_THEMES:
        expect(typed_before())
        return options
    answered = background()
    expect(answered)
    return replace(options, is_terminal_light=bool(answered.is_light))


def _terminal_encoding() -> str | None:
    """The encoding of the terminal; None for UTF-8, which has every character."""
    encoding: str = getattr(sys.__stderr__, "encoding", "utf-8")
    return None if encoding.lower().replace("-", "") == "utf8" else encoding
