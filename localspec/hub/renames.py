"""Renames: which names the Hub said mean one repository, because it was renamed. Uses no network.

The Hub answers for a former name as long as no other repository has it. What it said of a name is
kept in a file of its own, until it says something else of that name.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from localspec.utils.paths import cache_file, cache_folder
from localspec.utils.stored_json import stored, try_to_store

_FOLDER = "renames"


def names_of(repository: str) -> list[str]:
    """Return the names of a repository in lower case: the given one, then the nearest renames."""
    found = [repository.lower()]
    renames = [(asked, called.lower()) for _, asked, called in _renames()]
    for name in found:  # which grows: a repository may be renamed several times
        for pair in renames:
            found += [other for other in pair if name in pair and other not in found]
    return found


def record(asked: str, called: str) -> str | None:
    """Record how the Hub calls the repository for which it was asked.

    Return how it called it before, where the name has become that of another repository. What was
    said of further names that meant it is forgotten then, too: it is not known which one they mean.
    """
    asked, file = asked.lower(), cache_file(_FOLDER, [asked.lower()])
    if asked != called.lower():
        try_to_store(file, [asked, called])
        return None
    before = stored(file, _rename)
    if before is None:
        return None
    for each, *names in [*_renames()]:
        if asked in map(str.lower, names):
            with suppress(OSError):
                each.unlink()
    return before[1]


def _renames() -> Iterator[tuple[Path, str, str]]:
    """Yield every file, the name that was asked, in lower case, and how the Hub called it."""
    for file in sorted(cache_folder(_FOLDER).glob("*.json")):
        if rename := stored(file, _rename):
            yield file, *rename


def _rename(record: Any) -> tuple[str, str]:
    asked, called = map(str, record)
    return asked, called
