"""Where localspec keeps what it can make again."""

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """A folder of the user's cache; it may not exist yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification asks to ignore relative paths.
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "localspec" / name
