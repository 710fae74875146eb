"""Renames: which names the Hub said mean one repository, because it was renamed. Uses no network.

The Hub answers for a former name as long as no other repository has it. What it said of a name is
kept in a file of its own, until it says something else of that name.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.utils.paths import cache_file, cache_folder
from localspec.utils.stored_json import stored, try_to_store

_FOLDER = "renames"


def names_of(repository: str) -> list[str]:
    """Return the names of a repository in lower case: the given one, then the nearest renames."""
    found = [repository.lower()]
    renames = [(each.asked, each.called.lower()) for _, each in _renames()]
    for name in found:  # which grows: a repository may be renamed several times
        for pair in renames:
            found += [other for other in pair if name in pair and other not in found]
    return found


def record(asked: str, called: str, identity: str | None = None) -> str | None:
    """Record how the Hub calls the repository for which it was asked.

    identity: of the repository, which stays when it is renamed; None: the Hub did not say it.
    Return how the repository that had this name is or was called, where the name has become that of
    another one. What was said of further names that meant it is forgotten then, too: it is not
    known which one they mean.
    """
    asked, file = asked.lower(), cache_file(_FOLDER, [asked.lower()])
    if asked != called.lower():
        try_to_store(file, [asked, called, identity])
        return None
    before = stored(file, _Rename.of)
    # Its owner may have renamed that repository again, while nobody here asked for it by this name.
    other = next((each for _, each in _renames() if each.meant_another(asked, identity)), None)
    if before is None and other is None:
        return None
    for each, rename in [*_renames()]:
        if asked in (rename.asked, rename.called.lower()):
            with suppress(OSError):
                each.unlink()
    if before:
        return before.called
    return other.asked if other else None


@dataclass(frozen=True, slots=True)
class _Rename:
    """asked: the name, in lower case. called: how the Hub called that repository."""

    asked: str
    called: str
    identity: str | None

    @classmethod
    def of(cls, record: Any) -> "_Rename":
        """Read what was stored."""
        asked, called, identity = record
        return cls(str(asked), str(called), str(identity) if identity else None)

    def meant_another(self, called: str, identity: str | None) -> bool:
        """Whether the repository that was called so is not the one of this identity."""
        both = self.identity and identity
        return bool(both) and self.called.lower() == called and self.identity != identity


def _renames() -> Iterator[tuple[Path, _Rename]]:
    """Yield every file, and what it holds."""
    for file in sorted(cache_folder(_FOLDER).glob("*.json")):
        if rename := stored(file, _Rename.of):
            yield file, rename
