"""Stored JSON: small files of the cache, which are made again if they are missing or damaged.

A damaged file, a folder or a named pipe in its place never ends or blocks a run: it is ignored, a
line of the log says so, and the next result replaces it.
"""

import json
import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from localspec.utils.bounded_file import read_regular
from localspec.utils.paths import write_atomically

T = TypeVar("T")

_log = logging.getLogger(__name__)
# The largest real file has a few hundred kilobytes.
_MOST_BYTES = 4 << 20
# What can be wrong with a file that holds something else: JSON has nested lists without end, whole
# numbers too large for a float, and infinity.
_DAMAGE = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    RecursionError,
)


class DamagedFileError(Exception):
    """The file holds something else."""


def read_stored(file: Path) -> Any:
    """Return the JSON value in a file. Raises OSError, or DamagedFileError for anything else."""
    try:
        return json.loads(read_regular(file, _MOST_BYTES).decode())
    except _DAMAGE as error:
        raise DamagedFileError(str(error)) from error


def stored(file: Path, parse: Callable[[Any], T]) -> T | None:
    """Return what a file of the cache holds, None if it is missing or damaged.

    parse: makes it of the JSON value; raises ValueError, TypeError or the like for anything else.
    """
    try:
        record = read_stored(file)
        try:
            return parse(record)
        except _DAMAGE as error:
            raise DamagedFileError(str(error)) from error
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except (OSError, DamagedFileError):
        _log.info("a damaged cache file is ignored, and written anew: %s", file)
        return None


def store_json(file: Path, record: Any) -> None:
    """Replace a file of the cache, whatever lies there. Raises OSError."""
    write_atomically(file, json.dumps(record))


def try_to_store(file: Path, record: Any) -> None:
    """The same, where it does not matter much: without the file, the result is found out again.

    That it cannot be kept is said once.
    """
    try:
        store_json(file, record)
    except OSError as error:
        _say_not_kept(file.parent.parent, error.strerror)


@cache
def _say_not_kept(folder: Path, reason: str | None) -> None:
    _log.info(
        "%s cannot be written (%s): what is measured is not kept; LOCALSPEC_HOME names another "
        "folder",
        folder,
        reason,
    )
