"""Export dialog: asks for a path, and writes a session there."""

import json
import re
from pathlib import Path
from typing import Any

from textual.app import App

from localspec.errors import LocalspecError
from localspec_tui.archive import Archive, SavedSession
from localspec_tui.export import as_json, as_markdown, write_export
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
            file = write_export(path, _export(session, as_data=path.endswith(".json")))
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


def export_session(archive: Archive, key: str, path: str) -> Path:
    """Write a session to a new file, and return its absolute path. Raises LocalspecError."""
    return write_export(path, _export(archive.open(key), as_data=path.endswith(".json")))


def _export(session: SavedSession, *, as_data: bool) -> str:
    described = (session.conversation, session.title, session.model)
    if not as_data:
        return as_markdown(*described, system=session.system)
    record = as_json(*described, system=session.system)
    return json.dumps(record, ensure_ascii=False, indent=2) + "\n"
