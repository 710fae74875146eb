"""The layout of huggingface_hub's cache: where a file lies in it, and how a download gets there.

Contents are in blobs/, named by their hash. snapshots/COMMIT/ has one link per file of a revision,
and refs/main holds the newest commit. A partial download is in blobs/ too, under a name that every
process forms alike, so that another process can continue it.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from huggingface_hub.file_download import are_symlinks_supported
from huggingface_hub.utils import WeakFileLock

from localspec.errors import LocalspecError
from localspec.gguf.reader import read_header
from localspec.hub.copies import etag_of, record_copy
from localspec.hub.listing import RemoteFile, RemoteModel
from localspec.hub.store import folder_of, hub_cache, snapshots, snapshots_in
from localspec.utils.format import format_bytes
from localspec.utils.paths import stat_signature, written_whole

_LONGEST_NAME = 255
_LOCK_POLL = 0.2  # seconds
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class CachedFile:
    """One file of a model in the cache, downloaded or not.

    folder: of its repository. A download keeps it, whatever other spellings of the name come up.
    """

    model: RemoteModel
    file: RemoteFile
    folder: Path

    @property
    def path(self) -> Path:
        """The path to open the file by: its link in the snapshot."""
        return self.folder / "snapshots" / self.model.commit / self.file.path

    @property
    def partial_path(self) -> Path:
        """Where the content is while it is downloaded."""
        # huggingface_hub counts and deletes files that are called *.incomplete.
        return self._blob.with_name(f"{self.file.etag}.localspec.incomplete")

    @property
    def is_complete(self) -> bool:
        """Whether the file can be opened, has its full size, and is not known to be damaged."""
        return self._is_sound(self.path)

    @property
    def has_blob(self) -> bool:
        """Whether the content is complete on disk, maybe as a file of another commit."""
        return self._is_sound(self._blob)

    @property
    def partial_size(self) -> int:
        """Bytes of the partial download, 0 where there is none or it is too long."""
        size = _size(self.partial_path)
        return size if 0 <= size <= self.file.size else 0

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of the file that need not be downloaded any more."""
        known = self.is_complete or self.has_blob
        if known or any(etag_of(copy) == self.file.etag for copy in self.copies):
            return self.file.size
        return self.partial_size

    @property
    def bytes_to_write(self) -> int:
        """Bytes that have to be written yet, those of a copy included."""
        return 0 if self.is_complete or self.has_blob else self.file.size - self.partial_size

    @property
    def copies(self) -> list[Path]:
        """Files of other revisions that may have the same content: those of its name and size.

        Where the system has no links, files are in the folders of revisions alone.
        """
        found = (snapshot / self.file.path for snapshot in snapshots_in(self.folder))
        others = (each for each in found if each != self.path and not each.is_symlink())
        return [each for each in others if _size(each) == self.file.size]

    @contextmanager
    def locked(self, on_wait: Callable[[], None]) -> Iterator[None]:
        """Lock the file against other writers, huggingface_hub included.

        on_wait: called again and again while another process holds the lock; it may raise.
        """
        lock = self.folder.parent / ".locks" / self.folder.name / f"{self.file.etag}.lock"
        for needed in (lock, self._blob, self.path):
            needed.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            while True:
                try:
                    held.enter_context(WeakFileLock(lock, timeout=_LOCK_POLL))
                    break
                except TimeoutError:
                    on_wait()
            yield

    def accept_partial(self) -> bool:
        """Turn the complete download into a blob; where its hash is wrong, delete it instead.

        Returns whether the hash was right.
        """
        if not self._is_content(self.partial_path):
            self.partial_path.unlink()
            return False
        self.partial_path.replace(self._blob)
        return True

    def take_copy(self) -> bool:
        """Take the content as a blob from another revision; return whether one has it."""
        for copy in filter(self._is_content, self.copies):
            try:
                os.link(copy, self._blob)
            except OSError:  # a disk without hard links
                shutil.copyfile(copy, self._blob)
            return True
        return False

    def link(self, new_blob: bool) -> None:
        """Make the blob a file of this commit.

        new_blob: whether the blob was just downloaded, so that no other file uses it. Where the
        system has no links, such a blob is moved, and any other is copied.
        """
        self.path.unlink(missing_ok=True)
        if are_symlinks_supported(hub_cache()):
            self.path.symlink_to(os.path.relpath(self._blob, self.path.parent))
            return
        if new_blob:
            self._blob.replace(self.path)
        else:
            shutil.copyfile(self._blob, self.path)
        record_copy(self.path, self.file.etag)

    @property
    def _blob(self) -> Path:
        return self.folder / "blobs" / self.file.etag

    def _is_sound(self, path: Path) -> bool:
        """Whether a file has its full size and, where it is no GGUF, the content that it must have.

        Hashing all files would take minutes.
        """
        if _size(path) != self.file.size:
            return False
        return _has_header(*stat_signature(path)) or self._is_content(path)

    def _is_content(self, path: Path) -> bool:
        """Whether the bytes of a file are those that the Hub has."""
        with path.open("rb") as file:
            hashed = hashlib.file_digest(file, "sha256" if self.file.sha256 else self._git_hash)
        return hashed.hexdigest() == self.file.etag

    def _git_hash(self) -> "hashlib._Hash":
        return hashlib.sha1(b"blob %d\0" % self.file.size)


def cached_files(model: RemoteModel) -> list[CachedFile]:
    """Return every file of a model, in order.

    Raises LocalspecError for a name that no disk takes; it would be found out after the download.
    """
    for name in (part for file in model.files for part in file.path.split("/")):
        if len(name.encode("utf-8", "replace")) > _LONGEST_NAME:
            raise LocalspecError(
                f"{model.repository}: the file name {name:.60}... is longer than "
                f"{_LONGEST_NAME} bytes, which disks do not take; choose another repository"
            )
    folder = folder_of(model.repository.id)
    return [CachedFile(model, file, folder) for file in model.files]


def has_changed(model: RemoteModel) -> bool:
    """Whether a file is here that the Hub has replaced since, under the same name."""
    return any(
        _is_other(snapshot / file.path, file)
        for snapshot in snapshots(model.repository.id)
        if snapshot.name != model.commit
        for file in model.files
    )


def _is_other(entry: Path, file: RemoteFile) -> bool:
    """Whether this file of a revision is complete, and has another content."""
    if not entry.is_file():
        return False
    known = etag_of(entry)
    return known != file.etag if known else _size(entry) != file.size


def begin_main(cached: CachedFile) -> None:
    """Make the commit of a file main, where the repository has no main yet. Raises OSError.

    Before its files are there: `hf cache prune` deletes what no reference leads to, which was so of
    the complete files of a download that was interrupted.
    """
    if not (cached.folder / "refs" / "main").exists():
        # huggingface_hub takes a reference to a revision without a folder for damage.
        cached.path.parent.mkdir(parents=True, exist_ok=True)
        set_main(cached)


def set_main(cached: CachedFile) -> None:
    """Make the commit of a file the newest one, in refs/main. Raises OSError."""
    main, commit = cached.folder / "refs" / "main", cached.model.commit
    if main.is_file() and main.read_bytes() == commit.encode():
        return
    main.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(main) as part:
        part.write_text(commit, encoding="utf-8")


def free_space() -> int:
    """Return the free bytes of the disk that has the cache, or will have it."""
    cache = hub_cache()
    existing = next(folder for folder in (cache, *cache.parents) if folder.exists())
    return shutil.disk_usage(existing).free


@contextmanager
def disk_errors_explained(wanted: Sequence[CachedFile]) -> Iterator[None]:
    """Turn an OSError of the body into a LocalspecError. wanted: all files to be written."""
    try:
        yield
    except LocalspecError:  # some of which are OSErrors as well
        raise
    except OSError as error:
        if error.errno in _DISK_FULL:
            missing = sum(each.bytes_to_write for each in wanted)
            raise LocalspecError(
                f"the disk is full: {format_bytes(missing)} more have to go to {hub_cache()}; what "
                "was fetched is kept; make room and pull again, or set HF_HUB_CACHE to a folder "
                "elsewhere"
            ) from error
        where = error.filename or hub_cache()
        raise LocalspecError(
            f"cannot write to {where} ({error.strerror or error}); see to its permissions, "
            "or set HF_HUB_CACHE to a folder elsewhere"
        ) from error


@lru_cache
def _has_header(path: str, _size: int, _time: int) -> bool:
    """Whether the header of a GGUF can be read, for as long as the file stays the same."""
    try:
        read_header(path)
    except LocalspecError:
        return False
    return True


def _size(path: Path) -> int:
    """Return the bytes of a file, -1 where there is no such file."""
    try:
        return path.stat().st_size
    except OSError:
        return -1
