"""Store: the models in huggingface_hub's cache on this disk. Uses no network.

huggingface_hub has a folder per repository. Contents are in its `blobs`, named by their hash; each
revision is a folder of `snapshots` with links to them (copies, where the system has no links).
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from huggingface_hub import constants

from localspec.errors import ModelNotFoundError
from localspec.gguf.files import (
    ModelFiles,
    NotListedError,
    bytes_of,
    choose_model,
    files_of,
    gguf_files,
    group_files,
    group_sidecars,
    parts_of,
    preference,
)
from localspec.hub import renames
from localspec.hub.reference import Repository
from localspec.utils.paths import cache_file
from localspec.utils.stored_json import stored, try_to_store

_PREFIX = "models--"


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A complete model on this disk.

    name: the name by which `locate` finds it. repository: its repository; None for a model that is
    not in the Hub's cache. names: the paths of its files in the repository. files: the same files
    on this disk; the first is the one to load. blobs: the files with their contents, of every
    revision on disk.
    """

    name: str
    repository: str | None
    names: ModelFiles
    files: tuple[Path, ...]
    blobs: frozenset[Path]

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return bytes_of(self.blobs)


def hub_cache() -> Path:
    """Return the folder of huggingface_hub's cache (HF_HUB_CACHE, HF_HOME)."""
    return Path(os.path.abspath(constants.HF_HUB_CACHE))


def find(wanted: Repository) -> Path | None:
    """Return the (first) file of a downloaded model; None where it is not complete on this disk.

    The beginning of a quantisation does not count: `locate` tells what it means. Without a
    quantisation it is what `record_choice` says, else the best of all revisions, so that a name
    goes on meaning the same model where another one was fetched later, from a newer revision.
    Raises ModelNotFoundError where several downloaded models have this name.
    """
    if wanted.quant is None and (chosen_before := _recorded_choice(wanted.id)):
        return chosen_before
    found: list[tuple[tuple[bool, int], Path]] = []
    for snapshot in chain.from_iterable(map(snapshots, _spellings(wanted.id))):
        files = gguf_files(snapshot)
        try:
            chosen = choose_model(files, wanted.quant, wanted.id, exact=True)
        except NotListedError:
            continue
        except ModelNotFoundError:
            if found:
                continue
            raise
        if wanted.quant:
            return snapshot / chosen.first
        found.append((preference(chosen), snapshot / chosen.first))
    return min(found, key=lambda each: each[0])[1] if found else None


def record_choice(repository: str, file: str) -> None:
    """Record what a repository's name without a quantisation means from now on.

    file: the first one of the model, by its path in the repository.
    """
    try_to_store(_choice_file(repository), file)


def _recorded_choice(repository: str) -> Path | None:
    """Return the (first) file of the recorded model; None where it is not complete on this disk."""
    file = stored(_choice_file(repository), str)
    for snapshot in chain.from_iterable(map(snapshots, _spellings(repository))):
        if any(names.first == file for names in group_files(gguf_files(snapshot))):
            return snapshot / str(file)
    return None


def _choice_file(repository: str) -> Path:
    return cache_file("choices", [repository.lower()])


def models() -> list[StoredModel]:
    """Return every complete model of the cache, by repository."""
    return [stored for repository in repositories() for stored in models_of(repository)]


def repositories() -> list[str]:
    """Return every repository of models in the cache, complete or not."""
    return sorted(
        name for folder in _folders(hub_cache()) if (name := _repository_name(folder.name))
    )


def models_of(repository: str) -> list[StoredModel]:
    """Return the complete models of one repository, each from the revision that `find` takes.

    Sidecars are among them, named by their files.
    """
    repository = spelled(repository)
    found: dict[str, StoredModel] = {}
    taken: set[str | None] = {None}
    for snapshot in snapshots(repository):
        paths = gguf_files(snapshot)
        in_snapshot = group_files(paths)
        quants = [names.quant for names in in_snapshot]
        for names in in_snapshot:
            # A quantisation names one model only, in the first revision that has one.
            unique = quants.count(names.quant) == 1 and names.quant not in taken
            name = Repository(repository, names.quant if unique else names.first)
            found.setdefault(names.first, _stored(name, snapshot, names))
        for names in group_sidecars(paths):
            name = Repository(repository, names.first)
            found.setdefault(names.first, _stored(name, snapshot, names))
        taken.update(quants)
    return [found[first] for first in sorted(found)]


def quants_of(repository: str) -> set[str | None]:
    """Return the quantisations of a repository that are complete on this disk."""
    found = map(gguf_files, chain.from_iterable(map(snapshots, _spellings(repository))))
    return {each.quant for paths in found for each in group_files(paths) or group_sidecars(paths)}


def repository_of(path: Path) -> str | None:
    """Return the repository of a file of the cache; None for any other file."""
    try:
        folder = Path(os.path.abspath(path)).relative_to(hub_cache()).parts[0]
    except (ValueError, IndexError):
        return None
    return _repository_name(folder)


def folder_of(repository: str) -> Path:
    """Return the folder of a repository in the cache; it may not exist."""
    return _folder_named(spelled(repository))


def spelled(repository: str) -> str:
    """Return the name of a repository with the capitals that it has in the cache.

    The Hub takes names in any case, so a repository may be here as somebody wrote it.
    """
    with suppress(OSError):
        # Listed, because a disk that ignores capitals finds a folder by any spelling.
        if _folder_named(repository).name in os.listdir(hub_cache()):
            return repository
    return _spellings(repository)[0]


def _spellings(repository: str) -> list[str]:
    """Return the names in the cache that differ in capitals only, the given one first.

    Then those that it had or got by a rename.
    """
    known = renames.names_of(repository)
    found = [name for name in repositories() if name.lower() in known]
    order = {name: (known.index(name.lower()), name != repository) for name in found}
    return sorted(found, key=lambda name: order[name]) or [repository]


def _folder_named(repository: str) -> Path:
    return hub_cache() / f"{_PREFIX}{repository.replace('/', '--')}"


def snapshots(repository: str) -> Iterator[Path]:
    """Yield the folders of a repository's revisions on disk: main first, then from the newest."""
    yield from snapshots_in(folder_of(repository))


def snapshots_in(folder: Path) -> list[Path]:
    """Return the same of a repository's folder."""
    try:
        main = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        main = ""
    found = _folders(folder / "snapshots")
    found.sort(key=lambda path: (path.name == main, path.stat().st_mtime), reverse=True)
    return found


def dangling(wanted: Repository) -> list[str]:
    """Return the files of a model, or a whole repository, whose contents somebody has deleted.

    Of a split model all parts, as the others are of no use.
    """
    gone = [
        path.relative_to(snapshot).as_posix()
        for snapshot in snapshots(wanted.id)
        for path in snapshot.rglob("*")
        if path.is_symlink() and not os.path.exists(path)
    ]
    found = [*dict.fromkeys(part for file in gone for part in parts_of(file) or [file])]
    if wanted.quant is None:
        return found
    label = wanted.quant.upper()
    return [each for each in found if ModelFiles((each,)).quant == label or each == wanted.quant]


def blob_of(entry: Path) -> Path:
    """Return the blob that a file of a snapshot links to, or the file itself."""
    try:
        return Path(os.path.abspath(entry.parent / entry.readlink()))
    except OSError:
        return entry


def _stored(name: Repository, snapshot: Path, names: ModelFiles) -> StoredModel:
    entries = [
        revision / file
        for revision in snapshots(name.id)
        for file in names.paths
        if os.path.isfile(revision / file)
    ]
    blobs = frozenset(blob_of(entry) for entry in entries)
    files = tuple(snapshot / file for file in names.paths)
    return StoredModel(str(name), name.id, names, files, blobs)


def local_model(path: Path, name: str) -> StoredModel:
    """Return the model of a file outside of the cache, with all files of a split model."""
    files = files_of(path)
    return stored_model(name, ModelFiles(tuple(file.name for file in files)), files)


def stored_model(name: str, names: ModelFiles, files: Sequence[Path]) -> StoredModel:
    """Return a model that is not in the Hub's cache. names, files: as StoredModel has them."""
    return StoredModel(name, None, names, tuple(files), frozenset(files))


def _repository_name(folder: str) -> str | None:
    prefix, _, name = folder.partition("--")
    user, _, model = name.partition("--")
    return f"{user}/{model}" if f"{prefix}--" == _PREFIX and user and model else None


def _folders(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if os.path.isdir(path)]
    except OSError:
        return []
