"""Kept store: the store of what commands keep of what models have read (--keep).

Its files are of a bounded size, readable only by their owner, and of use only with the same model,
settings of caches and llama.cpp. Commands have keys of their own in it.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from localspec.engine.state_store import StateStore
from localspec.utils.paths import cache_folder

_MOST_BYTES = 16 * 2**30
# Seconds that saving may take in any case.
_ALWAYS = 1.0


def kept_folder() -> Path:
    """The folder of the files; it may not exist."""
    return cache_folder("slots")


class SavingTime:
    """Ends the saving of a text that takes longer than to read the text again.

    seconds: what reading takes; None: that is not known, and there is no limit. It begins now.
    """

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else monotonic() + max(seconds, _ALWAYS)
        self._is_stopped = False

    def stop(self) -> None:
        """End it now, from any thread."""
        self._is_stopped = True

    def over(self) -> str | None:
        """Why it is over; None while it is not."""
        if self._is_stopped:
            return "it was stopped"
        if self._end is not None and monotonic() > self._end:
            return "that takes longer than to read the text again"
        return None


def kept_store(
    folder: Path | None = None, gives_up: Callable[[], str | None] = lambda: None
) -> StateStore:
    """The store, by default that of the user. gives_up: as of StateStore.

    At most 16 GiB are kept, and half of what the disk has room for now; what was used least
    recently goes first.
    """
    folder = folder or kept_folder()
    most = min(_MOST_BYTES, _room(folder) // 2 + 1)
    return StateStore(folder, max_bytes=most, gives_up=gives_up)


def _room(folder: Path) -> int:
    """The free bytes of the disk of a folder that may not exist."""
    there = next((each for each in (folder, *folder.parents) if each.is_dir()), None)
    return shutil.disk_usage(there).free if there else 0
