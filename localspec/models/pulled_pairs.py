"""Pulled pairs: drafters that the user named when pulling a target; `auto` takes them from then on.

A target is known by its repository, so that a pair holds for all of its quantisations; other files
are known by their paths.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.hub import store
from localspec.hub.reference import Reference, Repository, repository
from localspec.imports import links
from localspec.utils.folder_lock import locked_folder
from localspec.utils.paths import data_folder, make_private_folder
from localspec.utils.stored_json import stored, try_to_store


@dataclass(frozen=True, slots=True)
class PulledPair:
    """target: a repository, or the path of a file. drafter: where it is."""

    target: str
    drafter: Reference


def pulled_drafters(target: Path | str) -> list[Reference]:
    """Return the drafters that a target was pulled with, the last one first.

    target: its file, or its repository. Files that are gone are left out; what the Hub has can be
    fetched again.
    """
    name = target if isinstance(target, str) else _name_of_target(target)
    found = [each.drafter for each in _pairs_of(name, _pairs())]
    return [each for each in found if isinstance(each, Repository) or each.is_file()]


def add_pulled(target: Path, drafter: Path) -> bool:
    """Remember that a drafter was pulled for a target; both are on this disk.

    Returns whether that is new: it was not the last one already.
    """
    pair = PulledPair(_name_of_target(target), _reference_of(drafter))
    with _locked():
        known = _pairs()
        if next(_pairs_of(pair.target, known), None) == pair:
            return False
        _store([pair, *(each for each in known if each != pair)])
    return True


def forget_removed(repositories: Collection[str]) -> None:
    """Forget the pairs of these repositories of which nothing is left on this disk."""
    gone = {each.lower() for each in repositories if not store.models_of(each)}
    with _locked():
        known = _pairs()
        kept = [each for each in known if not gone & set(_repositories(each))]
        if len(kept) < len(known):
            _store(kept)


def _pairs_of(target: str, pairs: Iterable[PulledPair]) -> Iterator[PulledPair]:
    return (each for each in pairs if each.target.lower() == target.lower())


def _name_of_target(target: Path) -> str:
    return store.repository_of(target) or links.repository_of(target) or str(target.absolute())


def _reference_of(file: Path) -> Reference:
    """The repository's file, which stays the same in a newer revision; else the path."""
    path, of = file.absolute(), store.repository_of(file)
    snapshots = store.folder_of(of) / "snapshots" if of else None
    if not of or not snapshots or not path.is_relative_to(snapshots):
        return path
    return Repository(of, Path(*path.relative_to(snapshots).parts[1:]).as_posix())


def _repositories(pair: PulledPair) -> Sequence[str]:
    drafter = pair.drafter.id if isinstance(pair.drafter, Repository) else ""
    return pair.target.lower(), drafter.lower()


def _file() -> Path:
    return data_folder("pairs") / "pulled.json"


def _pairs() -> list[PulledPair]:
    return stored(_file(), _parse) or []


@contextmanager
def _locked() -> Iterator[None]:
    """Let no other process change the list meanwhile; a damaged one is kept aside."""
    file = _file()
    with ExitStack() as held:
        with suppress(OSError):  # a disk that cannot be written; nothing is stored either
            make_private_folder(file.parent)
            held.enter_context(locked_folder(file.parent))
            if file.is_file() and stored(file, _parse) is None:
                file.replace(file.with_name(f"{file.name}.damaged"))
        yield


def _store(pairs: Sequence[PulledPair]) -> None:
    record = [{"target": each.target, "drafter": str(each.drafter)} for each in pairs]
    try_to_store(_file(), record)


def _parse(value: Any) -> list[PulledPair]:
    return [
        PulledPair(str(each["target"]), repository(each["drafter"]) or Path(each["drafter"]))
        for each in value
    ]
