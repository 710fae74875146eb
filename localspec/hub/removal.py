"""Removal: deleting models from huggingface_hub's cache, with what only they needed."""

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
from localspec.hub.partial_files import Part, parts_of

_LOCK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Removal:
    """What goes from one repository.

    entries: files of revisions, mostly links. folders: of revisions, those that hold nothing else,
    innermost first. blobs: bytes that nothing else links to, and parts of downloads. whole: nothing
    is left of the repository. freed: bytes.
    """

    repository: str
    entries: Sequence[Path]
    folders: Sequence[Path]
    blobs: Sequence[Path]
    whole: bool
    freed: int


def removal(repository: str, files: Collection[str], parts: Collection[Part] = ()) -> Removal:
    """What goes with these files, from every revision of the repository on this disk.

    parts: what is left of downloads, and goes as well; those of the files go in any case.
    """
    folder = store.folder_of(repository)
    revisions = [*store.snapshots(repository)]
    entries = [path for revision in revisions for path in _entries(revision)]
    going = {path for each in revisions for file in files if os.path.lexists(path := each / file)}
    left = [path for path in entries if path not in going]
    blobs = _only_of(going, left, folder / "blobs")
    names = {blob.name for blob in blobs}
    here = parts_of(repository)
    blobs |= {part.path for part in here if part in parts or part.blob in names}
    # What another download has begun goes on later, or even now.
    begun = any(part.path not in blobs for part in here)
    whole = not begun and not left
    if whole:
        blobs |= {*_entries(folder / "blobs")}
    copies = [path for path in going if not path.is_symlink()]
    return Removal(
        repository,
        sorted(going),
        [] if begun else _emptied(going, left, revisions),
        sorted(blobs),
        whole,
        shared_blobs.freed_by(blobs) + bytes_of(copies),
    )


def carry_out(planned: Removal) -> None:
    """Delete what is to go. Raises LocalspecError where that cannot be, or is being downloaded."""
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
            shared_blobs.delete(planned.blobs)
            if planned.whole:
                shutil.rmtree(folder)
    except TimeoutError as error:
        raise LocalspecError(
            f"{planned.repository} is being downloaded; wait for that, or stop it"
        ) from error
    except OSError as error:
        raise LocalspecError(
            f"{error.filename or folder} cannot be deleted: {error.strerror or error}; "
            "check its permissions"
        ) from error


@contextmanager
def _locked(planned: Removal) -> Iterator[None]:
    """Keep downloads out, the way huggingface_hub keeps one out of another."""
    folder = store.hub_cache() / ".locks" / store.folder_of(planned.repository).name
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as locks:
        for name in sorted({blob.name.partition(".")[0] for blob in planned.blobs}):
            locks.enter_context(WeakFileLock(folder / f"{name}.lock", timeout=_LOCK_SECONDS))
        yield


def _entries(folder: Path) -> list[Path]:
    """Every file and link below it."""
    return [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]


def _only_of(going: Collection[Path], left: Collection[Path], folder: Path) -> set[Path]:
    """The blobs in this folder that these link to, and none that are left."""
    kept = {store.blob_of(path) for path in left}
    blobs = {store.blob_of(path) for path in going} - kept
    # What a link of somebody's own leads to, elsewhere, stays.
    return {blob for blob in blobs if blob.parent == folder and os.path.lexists(blob)}


def _emptied(
    going: Collection[Path], left: Collection[Path], revisions: Collection[Path]
) -> list[Path]:
    """The folders of revisions that hold nothing but what goes, innermost first."""
    above = {folder for path in left for folder in path.parents}
    found = {
        folder
        for path in going
        for folder in path.parents
        if folder not in above and not {folder, *folder.parents}.isdisjoint(revisions)
    }
    return sorted(found, reverse=True)


def _drop_references(folder: Path, revisions: Collection[str]) -> None:
    """Delete the names (such as main) of revisions."""
    for name in folder.rglob("*"):
        with suppress(UnicodeDecodeError):
            if name.is_file() and name.read_text(encoding="utf-8").strip() in revisions:
                name.unlink()
