"""Export dialog: asks for a path, and writes a session there."""

import re
from typing import Any

from textual.app import App

from localspec.errors import InvalidValueError
from localspec_tui.export import export_session
from localspec_tui.saved_session import SavedSession
from localspec_tui.screens.input_dialog import InputDialog

_NO_LETTERS = re.compile(r"\W+")


def ask_export(app: App[Any], session: SavedSession) -> None:
    """Ask for a path and write a session there, as `export_session` does.

    Errors are shown as notifications.
    """

    def write(path: str | None) -> None:
        if not path:
            return
        try:
            line = export_session(session, path)
        except InvalidValueError as error:
            app.notify(str(error), severity="error", markup=False)
        else:
            app.notify(line, markup=False)

    name = _NO_LETTERS.sub("-", session.title).strip("-").lower() or "session"
    app.push_screen(InputDialog("Save to this file (.json has all variants):", f"{name}.md"), write)
