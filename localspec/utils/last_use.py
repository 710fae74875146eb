"""Last use: when localspec loaded a model file last, which it notes itself.

The times that file systems keep do not tell: many keep no time of reading, and a backup reads, too.
"""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from localspec.utils.paths import cache_file, real_path
from localspec.utils.stored_json import stored, try_to_store


def note_use(file: Path) -> None:
    """Note that a file is used now; where the cache cannot be written, nothing is noted."""
    try_to_store(_note_of(file), time.time())


def last_use(files: Iterable[Path]) -> float | None:
    """Return when one of the files was used last, in seconds since 1970; None: never noted."""
    return max(filter(None, (stored(_note_of(file), _time) for file in files)), default=None)


def _time(record: Any) -> float:
    return float(int(record))  # no infinity


def _note_of(file: Path) -> Path:
    return cache_file("last_use", [str(real_path(file))])
