"""Folder lock: processes that read a file of a folder and write it anew do so one after another."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Lock the folder against other processes, so that nothing that was added is lost.

    Windows has no such lock: there the last process to write wins, and the file stays valid.
    """
    if sys.platform == "win32":
        yield
        return
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
