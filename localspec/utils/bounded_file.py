"""Bounded files: read a file without waiting for it, and never more of it than makes sense."""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from localspec.utils.format import format_bytes

_CHUNK = 1 << 20
# What a user writes or pipes in: a prompt, a grammar, a record. A context holds far less.
MOST_TEXT_BYTES = 64 << 20


def open_regular(file: Path) -> BufferedReader:
    """Open a regular file to read. Raises OSError, also for a folder, named pipe or device."""
    # Without O_NONBLOCK, opening a pipe waits for its writer.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    opened = os.fdopen(os.open(file, flags), "rb")
    if stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
        return opened
    opened.close()
    raise OSError(errno.EINVAL, "it is no regular file", str(file))


def read_regular(file: Path, most: int) -> bytes:
    """Return the bytes of a regular file.

    most: the largest size in bytes. Raises OSError, also for a larger file and for a folder, named
    pipe or device, which is never waited for.
    """
    with open_regular(file) as opened:
        return read_stream(opened, most, str(file))


def read_at_most(file: Path, most: int) -> bytes:
    """Return the bytes of a file that the user named, which may be a pipe (`<(...)` of a shell).

    most: the largest size in bytes. Raises OSError, also where there is more to read.
    """
    with file.open("rb") as opened:
        return read_stream(opened, most, str(file))


def read_stream(opened: BinaryIO, most: int, name: str) -> bytes:
    """Return all bytes of an open file, such as standard input.

    most: the largest size in bytes. name: what an error calls it. Raises OSError, also where there
    is more to read.
    """
    # No more is allocated than there is: a reader of `most` bytes may reserve them all.
    chunks, left = [], most + 1
    while left and (chunk := opened.read(min(left, _CHUNK))):
        chunks.append(chunk)
        left -= len(chunk)
    if not left:
        raise OSError(errno.EFBIG, f"it is larger than {format_bytes(most)}", name)
    return b"".join(chunks)
