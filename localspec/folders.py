"""Where localspec keeps what it can make again."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any


def cache_folder(name: str) -> Path:
    """A folder of the user's cache; it may not exist yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification asks to ignore relative paths.
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "localspec" / name


def cache_file(folder: str, what: list[Any]) -> Path:
    """The JSON file of a folder of the cache that is about this; it may not exist yet."""
    key = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]
    return cache_folder(folder) / f"{key}.json"


def write_whole(file: Path, text: str) -> None:
    """Replace a file, and make its folder: nobody ever reads half of it. Raises OSError."""
    part = file.with_suffix(f".{os.getpid()}")
    file.parent.mkdir(parents=True, exist_ok=True)
    part.write_text(text, encoding="utf-8")
    part.replace(file)
