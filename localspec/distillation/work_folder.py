"""Work folder: what a training has done so far, in files that a crash cannot damage.

A file appears when it is whole, and begins with the SHA-256 of the rest. So a file that was cut
off, or changed on the disk, is missing for whoever reads it, and made again.
"""

import errno
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, BinaryIO

from localspec.distillation.hashed_file import HashedFile, SupportsWrite, whole_content
from localspec.errors import InvalidValueError, LocalspecError
from localspec.utils.format import format_bytes
from localspec.utils.paths import atomic_writer, cache_folder, make_private_folder

if sys.platform != "win32":
    import fcntl

_FOLDER, _LOCK = "training", ".lock"
# What the name of a file ends with whose content was stopped before it was whole.
BEGUN = ".begun"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class WorkFolder:
    """A folder of the cache for one piece of work. key: all that its results depend on."""

    def __init__(self, key: Sequence[Any]) -> None:
        name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]
        self.path = cache_folder(_FOLDER) / name

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if it is missing or damaged."""
        try:
            with self.open(name) as content:
                return content.read() if content else None
        except OSError:
            return None

    def write(self, name: str, content: bytes | memoryview) -> None:
        """Replace a file. Raises LocalspecError where the disk refuses; the old file stays."""
        self.write_parts(name, lambda file: file.write(content))

    def write_parts(self, name: str, write: Callable[[SupportsWrite], object]) -> None:
        """Replace a file by what `write` writes into one, part by part. Raises as `write`."""
        with self.writing(), atomic_writer(self.path / name) as file:
            hashed = HashedFile(file)
            try:
                write(hashed)
            except RuntimeError as error:
                raise hashed.error or error from error
            hashed.end()

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO | None]:
        """A file to read part by part inside the block; None if it is missing or damaged."""
        try:
            file = (self.path / name).open("rb")
        except OSError:
            yield None
            return
        with file:
            yield whole_content(file)

    def read_json(self, name: str) -> Any:
        """The JSON value in a file; None if it is missing or damaged."""
        content = self.read(name)
        return None if content is None else json.loads(content)

    def write_json(self, name: str, value: Any) -> None:
        """Replace a file by a JSON value. Raises as `write`."""
        self.write(name, json.dumps(value).encode())

    def size(self, name: str) -> int | None:
        """The bytes of a file; None if it is missing."""
        try:
            return (self.path / name).stat().st_size
        except OSError:
            return None

    def total_size(self, beginning: str) -> int:
        """The bytes of all files whose names begin so."""
        found = self.path.iterdir() if self.path.is_dir() else ()
        return sum(self.size(each.name) or 0 for each in found if each.name.startswith(beginning))

    def siblings(self) -> list["WorkFolder"]:
        """The folders of other pieces of work."""
        found = []
        for path in sorted(self.path.parent.iterdir()) if self.path.parent.is_dir() else ():
            if path.is_dir() and path != self.path:
                other = copy(self)
                other.path = path
                found.append(other)
        return found

    def require_free(self, size: float) -> None:
        """Raise LocalspecError where the disk has no room for so many bytes."""
        free = shutil.disk_usage(self.path).free
        if size > free:
            raise LocalspecError(
                f"this training takes {format_bytes(size)} more on the disk of {self.path}, and "
                f"{format_bytes(free)} are free; make room, or name fewer --layers or less with "
                "--cache-gb"
            )

    def delete(self, *names: str) -> None:
        """Delete files; those that are missing are left out."""
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def clear(self, *kept: str) -> None:
        """Delete all files but those that are kept."""
        if self.path.is_dir():
            names = (each.name for each in self.path.iterdir())
            self.delete(*(name for name in names if name not in (_LOCK, *kept)))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out. Raises InvalidValueError if one is at work here already.

        Windows has no such lock.
        """
        with self.writing():
            make_private_folder(self.path)
            handle = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if sys.platform != "win32":
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise InvalidValueError(
                        "the same training runs in another process; wait until it ends"
                    ) from error
            yield
        finally:
            os.close(handle)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Raise LocalspecError in place of an OSError inside the block."""
        try:
            make_private_folder(self.path)
            yield
        except OSError as error:
            raise LocalspecError(self._refusal(error)) from error

    def _refusal(self, error: OSError) -> str:
        if error.errno not in _FULL:
            return f"{self.path} cannot be written: {error.strerror or error}"
        free = format_bytes(shutil.disk_usage(self.path).free)
        return (
            f"the disk of {self.path} is full ({free} free); what was done is kept: make room, and "
            "run the same command with --resume"
        )


def clear_all() -> None:
    """Delete the work folders of all trainings, with the texts in them. Raises OSError."""
    if default_folder().exists():
        shutil.rmtree(default_folder())


def default_folder() -> Path:
    """Where work folders are."""
    return cache_folder(_FOLDER)
