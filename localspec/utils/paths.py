"""Where localspec keeps its own files. (Models from the Hub lie in huggingface_hub's cache.)"""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter
from pathlib import Path
from typing import Any

import platformdirs

_APP = "localspec"
_TEMPORARY = ".tmp"


def config_folder() -> Path:
    """Return the folder of the files that the user writes; it may not exist."""
    return _home() or platformdirs.user_config_path(_APP, appauthor=False)


def cache_folder(name: str) -> Path:
    """Return a folder for files that can be made again; it may not exist yet."""
    home = _home()
    cache = home / "cache" if home else platformdirs.user_cache_path(_APP, appauthor=False)
    return cache / name


def data_folder(name: str) -> Path:
    """Return a folder for files that cannot be made again; it may not exist yet."""
    home = _home()
    data = home / "data" if home else platformdirs.user_data_path(_APP, appauthor=False)
    return data / name


def cache_file(folder: str, key: list[Any]) -> Path:
    """Return the JSON file for a key in a folder of the cache; it may not exist yet.

    key: anything that JSON can express; the file's name is a hash of it.
    """
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
    return cache_folder(folder) / f"{digest}.json"


def stat_signature(file: Path) -> list[str | int]:
    """Return path, size in bytes and modification time in ns, to notice that a file changed.

    Part of the key of `cache_file`. Raises OSError.
    """
    status = file.stat()
    return [str(file.resolve()), status.st_size, status.st_mtime_ns]


def write_atomically(file: Path, text: str) -> None:
    """Replace a file in one step, so that no reader sees half of it; create its folder.

    Raises OSError.
    """
    make_private_folder(file.parent)
    with atomic_writer(file) as temporary:
        temporary.write(text.encode())


@contextmanager
def atomic_writer(file: Path, suffix: str = _TEMPORARY) -> Iterator[BufferedWriter]:
    """Open a temporary file that replaces `file` when the block ends without an exception.

    Only its owner can read it. suffix: of the temporary file, whose name begins with `file.stem`;
    it is left behind when the process is killed inside the block. Raises OSError.
    """
    handle, name = tempfile.mkstemp(suffix, file.stem, file.parent)
    try:
        with os.fdopen(handle, "wb") as temporary:
            yield temporary
        os.replace(name, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def make_private_folder(folder: Path) -> None:
    """Create a folder and the missing ones above it, for this user alone. Raises OSError."""
    for each in (*reversed(folder.parents), folder):
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)


def _home() -> Path | None:
    """Return LOCALSPEC_HOME, which holds all of localspec's own files where it is set."""
    home = os.environ.get("LOCALSPEC_HOME")
    return Path(home).expanduser().absolute() if home else None
