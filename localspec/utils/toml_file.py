"""TOML files that the user writes: read, with one line for whatever is wrong with them."""

import re
import tomllib
from pathlib import Path
from typing import Any

from localspec.errors import InvalidValueError
from localspec.utils.bounded_file import read_regular
from localspec.utils.text_file import decode_text

# Far above what anybody writes by hand.
_MOST_BYTES = 4 << 20
_SINGLE_BACKSLASH = re.compile(r"(?<!\\)\\(?!\\)")


def read_text(file: Path) -> str:
    """Return the text of a user's file, "" if there is none.

    Raises InvalidValueError for a file that cannot be read.
    """
    try:
        return decode_text(read_regular(file, _MOST_BYTES))
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidValueError(f"{file} cannot be read: {reason}; repair or move it") from error


def parse_toml(text: str, file: str) -> dict[str, Any]:
    """Return the tables of a file's text. Raises InvalidValueError for text that is no TOML."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        way_out = _hint(text, str(error)) or "repair or move it"
        raise InvalidValueError(f"{file} is not valid TOML: {error}; {way_out}") from error


def _hint(text: str, error: str) -> str | None:
    """How to write a path of Windows, if the error is about the backslashes of one."""
    found = re.search(r"at line (\d+)", error)
    line = text.split("\n")[int(found[1]) - 1] if found else ""
    path = re.search(r'"([A-Za-z]:\\[^"\']*|\\\\[^"\']+)"', line)
    if path is None or not _SINGLE_BACKSLASH.search(path[1]):
        return None
    return f"put paths with \\ in single quotes: '{path[1]}'"
