"""Export dialog: asks for a path, and writes a session there."""

import re
from typing import Any

from textual.app import App

from localspec.errors import LocalspecError
from localspec_tui.archive import Archive
from localspec_tui.export import export_text, write_export
from localspec_tui.screens.input_dialog import InputDialog

_NO_LETTERS = re.compile(r"\W+")


def ask_export(app: App[Any], archive: Archive, key: str) -> None:
    """Ask for a path and write a session there.

    A path that ends in .json gets all variants, any other path the active branch as Markdown.
    Errors are shown as notifications. key: of the session.
    """

    def write(path: str | None) -> None:
        if not path:
            return
        try:
            file = write_export(path, export_text(session, as_data=path.endswith(".json")))
        except LocalspecError as error:
            app.notify(str(error), severity="error", markup=False)
        else:
            app.notify(f"written: {file}", markup=False)

    try:
        session = archive.open(key)
    except LocalspecError as error:
        app.notify(str(error), severity="error", markup=False)
        return
    name = _NO_LETTERS.sub("-", session.title).strip("-").lower() or "session"
    app.push_screen(InputDialog("Save to this file (.json has all variants):", f"{name}.md"), write)
