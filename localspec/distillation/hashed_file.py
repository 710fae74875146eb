"""Hashed file: a file that begins with the SHA-256 of the rest, written and read part by part.

The state of a training is several times as large as the drafter, so there is no room for a copy.
"""

import hashlib
import os
from io import BufferedReader, RawIOBase
from typing import BinaryIO, Protocol

DIGEST = hashlib.sha256().digest_size


class SupportsWrite(Protocol):
    """What can be written to."""

    def write(self, data: bytes | memoryview, /) -> int: ...

    def flush(self) -> None: ...


class HashedFile:
    """Writes a file behind its hash. file: empty; `end` writes the hash.

    error: of the disk, which a library that writes may hide behind one of its own.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._hash = file, hashlib.sha256()
        self.error: OSError | None = None
        file.write(bytes(DIGEST))

    def write(self, data: bytes | memoryview, /) -> int:
        """Add a part."""
        self._hash.update(data)
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        """Write what was added to the disk."""
        self._file.flush()

    def end(self) -> None:
        """Write the hash of all parts."""
        self._file.seek(0)
        self._file.write(self._hash.digest())


def whole_content(file: BinaryIO) -> BinaryIO | None:
    """The content of a file behind its hash, to read it; None if that is not its hash."""
    expected, found = file.read(DIGEST), hashlib.sha256()
    while part := file.read(1 << 20):
        found.update(part)
    return BufferedReader(_Content(file)) if found.digest() == expected else None


class _Content(RawIOBase):
    """The file behind its hash, whose places are counted from there."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek(0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return self._file.seek(offset + (DIGEST if whence == os.SEEK_SET else 0), whence) - DIGEST

    def tell(self) -> int:
        return self._file.tell() - DIGEST
