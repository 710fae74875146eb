"""Where localspec keeps its own files. (Models from the Hub lie in huggingface_hub's cache.)"""

import glob
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter
from itertools import count
from pathlib import Path
from typing import Any

import platformdirs

from localspec.errors import InvalidValueError

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


def real_path(path: Path) -> Path:
    """Return a path whose links are followed; a loop of links stays as it is."""
    return Path(os.path.realpath(path))  # Path.resolve raises RuntimeError for a loop


def stat_signature(file: Path) -> list[str | int]:
    """Return path, size in bytes and modification time in ns, to notice that a file changed.

    Part of the key of `cache_file`. Raises OSError.
    """
    status = file.stat()
    return [str(real_path(file)), status.st_size, status.st_mtime_ns]


def typed_path(name: str) -> str:
    """The path of a name that a user has typed, as the system's functions take it.

    Where the locale is C, they take no letters beyond ASCII, but the bytes of any.
    """
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return os.fsdecode(name.encode("utf-8", "replace"))
    return name


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
    it is left behind when the process is killed inside the block. A folder in the place of the file
    is renamed. Raises OSError.
    """
    if file.is_dir():
        names = (file.with_name(f"{file.name}.aside-{number}") for number in count(1))
        file.rename(next(name for name in names if not name.exists()))
    handle, name = tempfile.mkstemp(suffix, file.stem, file.parent)
    # It is closed before it is renamed.
    with _renamed_at_end(Path(name), file), os.fdopen(handle, "wb") as temporary:
        yield temporary


def make_private_folder(folder: Path) -> None:
    """Create a folder and the missing ones above it, for this user alone. Raises OSError."""
    for each in (*reversed(folder.parents), folder):
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)


def _home() -> Path | None:
    """Return LOCALSPEC_HOME, which holds all of localspec's own files where it is set."""
    home = os.environ.get("LOCALSPEC_HOME")
    try:
        return Path(home).expanduser().absolute() if home else None
    except RuntimeError as error:
        raise InvalidValueError(
            f"LOCALSPEC_HOME is {home!r:.80}, and there is no such user; set it to a folder"
        ) from error


@contextmanager
def written_whole(path: Path, *, keep: bool = True) -> Iterator[Path]:
    """Yield a temporary name to write to; rename it to `path` at the end, or delete it if it fails.

    keep: False deletes it in any case. What a killed process left of an earlier try is deleted.
    """
    delete_parts_of_the_dead(path.parent.glob(f".{glob.escape(path.name)}.*.part"))
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with _renamed_at_end(part, path if keep else None):
        yield part


@contextmanager
def _renamed_at_end(part: Path, path: Path | None) -> Iterator[None]:
    """Rename a temporary file at the end, or delete it if the block fails or `path` is None."""
    try:
        yield
        if path:
            os.replace(part, path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def delete_parts_of_the_dead(parts: Iterable[Path]) -> None:
    """Delete those of temporary files whose process is gone: `NAME.PROCESS.SUFFIX`."""
    left = [*parts]
    if not left:
        return
    import psutil  # takes longer than most callers need altogether

    for part in left:
        process = part.stem.rpartition(".")[2]
        if process.isdecimal() and not psutil.pid_exists(int(process)):
            part.unlink(missing_ok=True)
