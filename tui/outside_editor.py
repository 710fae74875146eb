"""Outside editor: an editor of the user's while the app leaves the terminal to it."""

from typing import Any

from textual.app import App, SuspendNotSupported

from localspec_tui.editor import edit


def edit_outside(app: App[Any], text: str) -> tuple[str, str | None]:
    """Do what `edit` does, while the app leaves the terminal to the editor."""
    try:
        with app.suspend():
            # An error must not leave the block, or the app is not resumed.
            return edit(text)
    except SuspendNotSupported:
        return text, "an editor needs a terminal"
