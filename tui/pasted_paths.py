"""Pasted paths: files that are dropped on the chat, or whose paths are pasted, as attachments."""

import os
import shlex
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from localspec_tui.attachments import Attachments
from localspec_tui.file_names import written_name

# Longer texts are no paths.
_MOST_LETTERS = 8192
_MOST_FILES = 20


def as_attachments(pasted: str) -> str | None:
    """What attaches the files whose paths were pasted; None unless all of it is such paths.

    A terminal writes the paths of dropped files as a shell has them, or as addresses (`file://`).
    A name without a folder stays a word. What cannot be attached is refused once it is sent.
    """
    if len(pasted) > _MOST_LETTERS:
        return None
    written = [written_name(path) for path in _paths(pasted.strip())]
    if not written or not all(written):
        return None
    text = " ".join(f"@{each}" for each in written)
    return text if len(Attachments().names(text)) == len(written) else None


def _paths(text: str) -> Sequence[str]:
    """The paths that a text consists of; nothing if a word of it is none."""
    if _is_file(text):
        return [text]
    try:
        words = shlex.split(text, posix=os.name != "nt")
    except ValueError:
        return []
    paths = [_path_of(word.strip("\"'") if os.name == "nt" else word) for word in words]
    is_few = 0 < len(paths) <= _MOST_FILES
    return paths if is_few and all(map(_is_file, paths)) else []


def _path_of(word: str) -> str:
    """The path that a word is, or an address names."""
    if not word.startswith("file://"):
        return word
    try:
        path = unquote(urlsplit(word).path)
    except ValueError:  # no address after all: file://[x
        return word
    return path.removeprefix("/") if os.name == "nt" else path


def _is_file(path: str) -> bool:
    if "\0" in path or not any(each in path for each in (os.sep, "/")):
        return False
    return os.path.isfile(os.path.expanduser(path))
