"""File names: how the name of a file is written after an @, and which one may be meant."""

import os
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from localspec.utils.paths import typed_path
from localspec.utils.similar_names import similar_names

_NEEDS_QUOTES = re.compile(r"""[\s"'`]|[.,;:!?)\]}]\Z""")
# Letters that a text box does not keep: control characters, lone surrogates and ends of lines.
_NOT_TYPED = {"Cc", "Cs", "Zl", "Zp"}
_SPACE = re.compile(r"\s")
# A shorter word is like too many names. In letters.
_LEAST_SIMILAR = 4


def path_of(name: str) -> Path:
    """The path that a name means."""
    return Path(os.path.expanduser(typed_path(name)))


def written_name(path: str) -> str | None:
    """A path as it is written after @; None for one that cannot be typed."""
    return quoted(path) if path == typeable(path) else None


def quoted(name: str, *, always: bool = False) -> str:
    """A name with quotes around it, where it needs them."""
    if not always and not _NEEDS_QUOTES.search(name):
        return name
    quote = "'" if '"' in name else '"'
    return f"{quote}{name}{quote}"


def typeable(name: str) -> str:
    """A name with other letters for those that cannot be typed after @."""
    typed = "".join("?" if unicodedata.category(each) in _NOT_TYPED else each for each in name)
    return typed.replace('"', "'") if '"' in typed and "'" in typed else typed


def similar_file(name: str) -> str | None:
    """Return the file or folder that a misspelt name may mean, as a name in the same folder."""
    parent, word = os.path.split(name)
    try:
        names = os.listdir(path_of(parent))
    except (OSError, ValueError):
        return None
    found = similar_names(word, names) if len(word) >= _LEAST_SIMILAR else []
    # Two names are not alike because of what they end in.
    stem = os.path.splitext(word)[0]
    return next((each for each in found if similar_names(stem, [os.path.splitext(each)[0]])), None)


def spaced_file(text: str) -> str | None:
    """Return the file or folder whose name, with spaces in it, a text begins with."""
    parent, slash, _ = text.split(maxsplit=1)[0].rpartition("/")
    stem = parent + slash
    try:
        names = os.listdir(path_of(stem))
    except (OSError, ValueError):
        return None
    behind = text[len(stem) :]
    spaced = (name for name in names if _SPACE.search(name) and behind.startswith(name))
    longest = max(spaced, key=len, default="")
    ends = not behind[len(longest) : len(longest) + 1].isalnum()
    return stem + longest if longest and ends else None


def complete_path(prefix: str) -> Iterator[str]:
    """Yield the paths that begin with a prefix, as they are written after @.

    Folders end with a slash, and paths with spaces are quoted. Hidden files are left out unless the
    prefix has their dot.
    """
    is_quoted = prefix.startswith('"')
    parent, begun = os.path.split(prefix.removeprefix('"'))
    stem = prefix.removeprefix('"').removesuffix(begun)
    folder = path_of(parent)
    try:
        names = os.listdir(folder)
    except OSError:
        return
    beginning = begun.casefold()
    fitting = [
        name
        for name in names
        if name.casefold().startswith(beginning)
        and (begun.startswith(".") or not name.startswith("."))
        and name == typeable(name)
    ]
    for name in sorted(fitting, key=str.casefold):
        is_folder = os.path.isdir(folder / name)
        yield _completed(stem + name, is_folder=is_folder, is_quoted=is_quoted)


def _completed(path: str, *, is_folder: bool, is_quoted: bool) -> str:
    if is_folder:
        path += "/"
    if not is_quoted and not _SPACE.search(path):
        return path
    return f'"{path}' if is_folder else f'"{path}"'
