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


def config_folder() -> Path:
    """What the user writes; it may not exist."""
    return _home() or platformdirs.user_config_path(_APP, appauthor=False)


def cache_folder(name: str) -> Path:
    """A folder for what can be made again; it may not exist yet."""
    home = _home()
    cache = home / "cache" if home else platformdirs.user_cache_path(_APP, appauthor=False)
    return cache / name


def data_folder(name: str) -> Path:
    """A folder for what nobody could make again; it may not exist yet."""
    home = _home()
    data = home / "data" if home else platformdirs.user_data_path(_APP, appauthor=False)
    return data / name


def cache_file(folder: str, what: list[Any]) -> Path:
    """The JSON file of a folder of the cache that is about this; it may not exist yet."""
    key = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]
    return cache_folder(folder) / f"{key}.json"


def file_identity(file: Path) -> list[str | int]:
    """What changes when a file does, for `cache_file`. Raises OSError."""
    status = file.stat()
    return [str(file.resolve()), status.st_size, status.st_mtime_ns]


def write_whole(file: Path, text: str) -> None:
    """Replace a file, and make its folder: nobody ever reads half of it. Raises OSError."""
    part = file.with_suffix(f".{os.getpid()}")
    make_private(file.parent)
    part.write_text(text, encoding="utf-8")
    part.replace(file)


@contextmanager
def replacing(file: Path, suffix: str) -> Iterator[BufferedWriter]:
    """Write a file, for its owner alone, that takes the place of another once it is whole.

    suffix: of the file that is left where a process dies in between; it begins with `file.stem`.
    Raises OSError.
    """
    handle, name = tempfile.mkstemp(suffix, file.stem, file.parent)
    try:
        with os.fdopen(handle, "wb") as part:
            yield part
        os.replace(name, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def make_private(folder: Path) -> None:
    """Make a folder, and those it lies in, for this user alone. Raises OSError."""
    for each in (*reversed(folder.parents), folder):
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)


def _home() -> Path | None:
    """LOCALSPEC_HOME, which holds everything where it is set."""
    home = os.environ.get("LOCALSPEC_HOME")
    return Path(home).expanduser().absolute() if home else None
