"""Where a file lies in huggingface_hub's cache, and how it gets there: that library's own layout.

Contents are in blobs/, named by their hash; snapshots/COMMIT/ has a link to them per file, and
refs/main says which commit is the newest. What is fetched only in part is in blobs/ too, under a
name that stays the same, so that another process can go on with it.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub.file_download import are_symlinks_supported
from huggingface_hub.utils import WeakFileLock

from localspec.errors import LocalspecError
from localspec.hub.listing import RemoteFile, RemoteModel
from localspec.hub.store import folder_of, hub_cache
from localspec.utils.format import format_bytes

_LOCK_POLL = 0.2  # seconds
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class Place:
    """Where one file of a model is or will be."""

    model: RemoteModel
    file: RemoteFile

    @property
    def path(self) -> Path:
        """What it is opened by."""
        return _folder(self.model) / "snapshots" / self.model.commit / self.file.path

    @property
    def part(self) -> Path:
        """What there is of it while it is fetched."""
        # huggingface_hub counts and prunes what is called *.incomplete.
        return self._blob.with_name(f"{self.file.etag}.localspec.incomplete")

    @property
    def whole(self) -> bool:
        return _size(self.path) == self.file.size

    @property
    def blob_whole(self) -> bool:
        """The content is here, maybe as a file of another commit."""
        return _size(self._blob) == self.file.size

    @property
    def part_size(self) -> int:
        """Bytes of the part, 0 where it cannot be one."""
        size = _size(self.part)
        return size if 0 <= size <= self.file.size else 0

    @property
    def fetched(self) -> int:
        """Bytes of it that need not be fetched any more."""
        return self.file.size if self.whole or self.blob_whole else self.part_size

    @contextmanager
    def locked(self, waiting: Callable[[], None]) -> Iterator[None]:
        """While inside, nobody else writes it, huggingface_hub included.

        waiting: called again and again while someone else does; it may raise.
        """
        folder = _folder(self.model)
        lock = folder.parent / ".locks" / folder.name / f"{self.file.etag}.lock"
        for needed in (lock, self._blob, self.path):
            needed.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            while True:
                try:
                    held.enter_context(WeakFileLock(lock, timeout=_LOCK_POLL))
                    break
                except TimeoutError:
                    waiting()
            yield

    def accept(self) -> bool:
        """Make the part the content if its hash is right; else delete it."""
        with self.part.open("rb") as part:
            hashed = hashlib.file_digest(part, "sha256" if self.file.sha256 else self._git_hash)
        if hashed.hexdigest() != self.file.etag:
            self.part.unlink()
            return False
        self.part.replace(self._blob)
        return True

    def link(self, new: bool) -> None:
        """Make the content the file of this commit. new: no other file can have this content."""
        self.path.unlink(missing_ok=True)
        if are_symlinks_supported(hub_cache()):
            self.path.symlink_to(os.path.relpath(self._blob, self.path.parent))
        elif new:
            self._blob.replace(self.path)
        else:
            shutil.copyfile(self._blob, self.path)

    @property
    def _blob(self) -> Path:
        return _folder(self.model) / "blobs" / self.file.etag

    def _git_hash(self) -> "hashlib._Hash":
        return hashlib.sha1(b"blob %d\0" % self.file.size)


def places(model: RemoteModel) -> list[Place]:
    return [Place(model, file) for file in model.files]


def set_main(model: RemoteModel) -> None:
    """Say that the model's commit is the newest. Raises OSError."""
    main = _folder(model) / "refs" / "main"
    if main.is_file() and main.read_text(encoding="utf-8") == model.commit:
        return
    main.parent.mkdir(parents=True, exist_ok=True)
    part = main.with_name(f"main.{os.getpid()}.tmp")
    part.write_text(model.commit, encoding="utf-8")
    part.replace(main)


def free_space() -> int:
    """Bytes free where the cache is, or will be."""
    cache = hub_cache()
    there = next(folder for folder in (cache, *cache.parents) if folder.exists())
    return shutil.disk_usage(there).free


@contextmanager
def writing(wanted: Sequence[Place]) -> Iterator[None]:
    """What the disk refuses inside becomes a LocalspecError. wanted: all that is to be written."""
    try:
        yield
    except LocalspecError:  # some of which are OSErrors as well
        raise
    except OSError as error:
        if error.errno in _FULL:
            missing = sum(place.file.size - place.fetched for place in wanted)
            raise LocalspecError(
                f"the disk is full: {format_bytes(missing)} more have to go to {hub_cache()}; what "
                "was fetched is kept; make room and pull again, or set HF_HUB_CACHE to a folder "
                "elsewhere"
            ) from error
        raise LocalspecError(
            f"cannot write to {hub_cache()} ({error.strerror or error}); see to its permissions, "
            "or set HF_HUB_CACHE to a folder elsewhere"
        ) from error


def _folder(model: RemoteModel) -> Path:
    return folder_of(model.repository.id)


def _size(path: Path) -> int:
    """Bytes, -1 where there is no such file."""
    try:
        return path.stat().st_size
    except OSError:
        return -1
