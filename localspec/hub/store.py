"""Store: the models on this disk, most of them in huggingface_hub's cache. Opens no socket.

huggingface_hub keeps a folder per repository. Files lie in `blobs`, named by their contents; each
revision is a folder of `snapshots` with links to them (copies, where there are no links).
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import constants

from localspec.errors import ModelNotFoundError
from localspec.gguf.files import Unit, bytes_of, choose, files_of, units
from localspec.hub.reference import Repository

_PREFIX = "models--"


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A whole model on this disk.

    name: what to call it, so that `locate` finds this one. repository: where it is from; None for
    a file that is not in the Hub's cache. files: in order; it is loaded by the first. blobs: where
    their bytes are, in every revision of the repository that is on disk. used: when it was last
    read or written, in seconds since 1970.
    """

    name: str
    repository: str | None
    unit: Unit
    files: tuple[Path, ...]
    blobs: frozenset[Path]
    used: float

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return bytes_of(self.blobs)


def hub_cache() -> Path:
    """Where huggingface_hub keeps what it downloads (HF_HUB_CACHE, HF_HOME)."""
    return Path(os.path.abspath(constants.HF_HUB_CACHE))


def find(wanted: Repository) -> Path | None:
    """The (first) file of a model that was downloaded whole, else None.

    Raises ModelNotFoundError where several that were are meant alike.
    """
    for snapshot in snapshots(wanted.id):
        files = _whole_files(snapshot)
        quants = [unit.quant for unit in units(files)]
        if not quants:
            continue
        try:
            return snapshot / choose(files, wanted.quant, wanted.id).first
        except ModelNotFoundError:
            if wanted.quant is None or wanted.quant.upper() in quants:
                raise
    return None


def models() -> list[StoredModel]:
    """Every whole model of the cache, by repository."""
    return [stored for repository in repositories() for stored in of_repository(repository)]


def repositories() -> list[str]:
    """Every repository of models in the cache, whole or not."""
    return sorted(
        name for folder in _folders(hub_cache()) if (name := _repository_name(folder.name))
    )


def of_repository(repository: str) -> list[StoredModel]:
    """The whole models of one repository; of several revisions of a file, the one `find` takes."""
    found: dict[str, StoredModel] = {}
    taken: set[str | None] = {None}
    for snapshot in snapshots(repository):
        here = units(_whole_files(snapshot))
        quants = [unit.quant for unit in here]
        for unit in here:
            # A quantisation names one model only, in the revision that is looked at first.
            alone = quants.count(unit.quant) == 1 and unit.quant not in taken
            name = Repository(repository, unit.quant if alone else unit.first)
            found.setdefault(unit.first, _stored(name, snapshot, unit))
        taken.update(quants)
    return [found[first] for first in sorted(found)]


def repository_of(path: Path) -> str | None:
    """The repository a file of the cache is from; None for any other file."""
    try:
        folder = Path(os.path.abspath(path)).relative_to(hub_cache()).parts[0]
    except (ValueError, IndexError):
        return None
    return _repository_name(folder)


def folder_of(repository: str) -> Path:
    """Where the cache keeps a repository; it may not exist."""
    return hub_cache() / f"{_PREFIX}{repository.replace('/', '--')}"


def snapshots(repository: str) -> Iterator[Path]:
    """Its revisions on disk: the one called main first, then the newest."""
    folder = folder_of(repository)
    try:
        main = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        main = ""
    found = _folders(folder / "snapshots")
    found.sort(key=lambda path: (path.name == main, path.stat().st_mtime), reverse=True)
    yield from found


def blob_of(entry: Path) -> Path:
    """Where the bytes of a file of a snapshot are: the blob it links to, or the file itself."""
    try:
        return Path(os.path.abspath(entry.parent / entry.readlink()))
    except OSError:
        return entry


def _stored(name: Repository, snapshot: Path, unit: Unit) -> StoredModel:
    entries = [
        revision / file
        for revision in snapshots(name.id)
        for file in unit.files
        if os.path.isfile(revision / file)
    ]
    blobs = frozenset(blob_of(entry) for entry in entries)
    files = tuple(snapshot / file for file in unit.files)
    return StoredModel(str(name), name.id, unit, files, blobs, _last_use(blobs))


def local_model(path: Path) -> StoredModel:
    """The model of a file that is not in the cache, with all files that it is split into."""
    files = files_of(path)
    unit = Unit(tuple(file.name for file in files))
    return StoredModel(str(path), None, unit, files, frozenset(files), _last_use(files))


def _last_use(blobs: Iterable[Path]) -> float:
    times = [0.0]
    for blob in blobs:
        with suppress(OSError):
            status = blob.stat()
            times += [status.st_atime, status.st_mtime]
    return max(times)


def _whole_files(snapshot: Path) -> list[str]:
    """The GGUF files of a revision, by their path in the repository."""
    return [
        path.relative_to(snapshot).as_posix()
        for path in snapshot.rglob("*.gguf")
        if os.path.isfile(path)  # not a link to a file that is gone, or that may not be seen
    ]


def _repository_name(folder: str) -> str | None:
    prefix, _, name = folder.partition("--")
    user, _, model = name.partition("--")
    return f"{user}/{model}" if f"{prefix}--" == _PREFIX and user and model else None


def _folders(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if os.path.isdir(path)]
    except OSError:
        return []
