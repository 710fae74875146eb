"""Clipboard: that of the desktop, for terminals without OSC 52, which Textual uses to copy."""

from contextlib import suppress
from importlib import import_module


def copy_to_desktop_clipboard(text: str) -> None:
    """Copy a text, if pyperclip is installed and finds a clipboard."""
    # pyperclip raises a kind of RuntimeError if there is no clipboard.
    with suppress(ImportError, RuntimeError):
        import_module("pyperclip").copy(text)
