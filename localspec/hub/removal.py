"""Removal of models from huggingface_hub's cache, with everything that only they use."""

import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub.utils import WeakFileLock

from localspec.errors import LocalspecError
from localspec.gguf.files import bytes_of
from localspec.hub import shared_blobs, store
from localspec.hub.partial_files import PartialFile, partial_files

_LOCK_SECONDS, _MOMENT = 2.0, 0.1
# Letters of the hash of a large file; a mirror may give one of git, which names no partial file.
_SHA256 = 64
# Windows deletes no file that a program has open.
_IN_USE = "end the programs that use it, or " if os.name == "nt" else ""


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """What is to be deleted of one repository.

    entries: files of snapshots, mostly links. folders: those of snapshots that are empty then, the
    innermost first. blobs: contents that nothing else links to, and partial files. whole: whether
    nothing is left of the repository but links that lead nowhere. freed: bytes.
    """

    repository: str
    entries: Sequence[Path]
    folders: Sequence[Path]
    blobs: Sequence[Path]
    whole: bool
    freed: int


def plan_removal(
    repository: str, files: Collection[str], partial: Collection[PartialFile] = ()
) -> RemovalPlan:
    """Plan to delete files from every revision of a repository on this disk.

    files: paths in the repository; their partial files are deleted too. partial: further partial
    files to delete.
    """
    folder = store.folder_of(repository)
    revisions = [*store.snapshots(repository)]
    entries = [path for revision in revisions for path in _entries(revision)]
    going = {path for each in revisions for file in files if os.path.lexists(path := each / file)}
    left = [path for path in entries if path not in going]
    blobs = _only_of(going, left, folder / "blobs")
    names = {blob.name for blob in blobs}
    on_disk = partial_files(repository)
    blobs |= {file.path for file in on_disk if file in partial or file.blob in names}
    # Another download can still be continued, or is even running.
    begun = any(file.path not in blobs for file in on_disk)
    whole = not begun and not any(path.exists() for path in left)
    if whole:
        blobs |= {*_entries(folder / "blobs")}
    copies = [path for path in going if not path.is_symlink()]
    return RemovalPlan(
        repository,
        sorted(going),
        [] if begun else _emptied(going, left, revisions),
        sorted(blobs),
        whole,
        shared_blobs.bytes_freed(blobs) + bytes_of(copies),
    )


def remove(planned: RemovalPlan) -> None:
    """Delete as planned. Raises LocalspecError where that fails, or while a download is running."""
    folder = store.folder_of(planned.repository)
    try:
        with _locked(planned):
            for entry in planned.entries:
                entry.unlink(missing_ok=True)
            _drop_references(folder / "refs", {each.name for each in planned.folders})
            for each in planned.folders:
                with suppress(OSError):  # somebody has put something in
                    each.rmdir()
            # Last, so that no link ever leads nowhere.
            shared_blobs.delete_blobs(planned.blobs)
            if planned.whole:
                shutil.rmtree(folder)
    except TimeoutError as error:
        raise LocalspecError(
            f"{planned.repository} is being downloaded; wait for that, or stop it"
        ) from error
    except OSError as error:
        raise LocalspecError(
            f"{planned.repository} cannot be deleted: {error.strerror or error} "
            f"({error.filename or folder}); {_IN_USE}check its permissions"
        ) from error


def remove_outdated(repository: str, current: Collection[str]) -> int:
    """Delete partial files of contents that the Hub has no longer; return their bytes.

    No download continues them. current: the hashes of all files of the repository on the Hub now.
    What another process holds stays, and all where the Hub, or a mirror, does not tell every hash.
    """
    if "" in current or not any(len(each) == _SHA256 for each in current):
        return 0
    freed = 0
    for part in partial_files(repository):
        if part.blob in current or not part.resumable:
            continue
        with suppress(OSError), _lock(repository, part.blob, _MOMENT):
            size = part.size
            part.path.unlink()
            freed += size
    return freed


@contextmanager
def _locked(planned: RemovalPlan) -> Iterator[None]:
    """Hold the locks of huggingface_hub, so that nothing to be deleted is downloaded meanwhile."""
    with ExitStack() as locks:
        for name in sorted({blob.name.partition(".")[0] for blob in planned.blobs}):
            locks.enter_context(_lock(planned.repository, name, _LOCK_SECONDS))
        yield


@contextmanager
def _lock(repository: str, blob: str, seconds: float) -> Iterator[None]:
    """Hold the lock of a content, for which it waits so long. Raises OSError."""
    folder = store.hub_cache() / ".locks" / store.folder_of(repository).name
    folder.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(folder / f"{blob}.lock", timeout=seconds):
        yield


def _entries(folder: Path) -> list[Path]:
    """Return every file and link below a folder."""
    return [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]


def _only_of(going: Collection[Path], left: Collection[Path], folder: Path) -> set[Path]:
    """Return the blobs in this folder that only the files to be deleted link to."""
    kept = {store.blob_of(path) for path in left}
    blobs = {store.blob_of(path) for path in going} - kept
    # A link that a user made may lead elsewhere; its target is kept.
    return {blob for blob in blobs if blob.parent == folder and os.path.lexists(blob)}


def _emptied(
    going: Collection[Path], left: Collection[Path], revisions: Collection[Path]
) -> list[Path]:
    """Return the folders of revisions that are empty after the removal, the innermost first."""
    above = {folder for path in left for folder in path.parents}
    found = {
        folder
        for path in going
        for folder in path.parents
        if folder not in above and not {folder, *folder.parents}.isdisjoint(revisions)
    }
    return sorted(found, reverse=True)


def _drop_references(folder: Path, revisions: Collection[str]) -> None:
    """Delete the references (such as main) to these revisions."""
    for name in folder.rglob("*"):
        with suppress(UnicodeDecodeError):
            if name.is_file() and name.read_text(encoding="utf-8").strip() in revisions:
                name.unlink()
