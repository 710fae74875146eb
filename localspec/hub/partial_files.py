"""Partial files: what interrupted downloads left in huggingface_hub's cache."""

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from localspec.gguf.files import bytes_of
from localspec.hub.store import folder_of
from localspec.utils.paths import cache_file, write_atomically

_RESUMABLE = ".localspec.incomplete"


@dataclass(frozen=True, slots=True)
class PartialFile:
    """The downloaded beginning of a file.

    blob: the name of the complete file in blobs/. resumable: whether `localspec pull` continues it;
    nothing continues those of huggingface_hub. model: the name of its model, and total: the bytes
    of the complete file; None where they are unknown.
    """

    repository: str
    path: Path
    blob: str
    resumable: bool
    model: str | None
    total: int | None

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return bytes_of([self.path])


def partial_files(repository: str) -> list[PartialFile]:
    """Return the partial files of a repository, by name."""
    try:
        names = sorted(os.listdir(folder_of(repository) / "blobs"))
    except OSError:
        return []
    # A complete blob is named by a hash alone.
    return [_partial_file(repository, name) for name in names if "." in name[1:]]


def record_download(repository: str, blob: str, model: str, total: int) -> None:
    """Record what a file is before its download begins, so that `partial_files` can tell.

    blob: its name in blobs/. model: the name of the model it belongs to. total: its bytes.
    """
    with suppress(OSError):
        write_atomically(
            _record_file(repository, blob), json.dumps({"model": model, "total": total})
        )


def _partial_file(repository: str, name: str) -> PartialFile:
    blob = name.partition(".")[0]
    model = total = None
    with suppress(OSError, ValueError, TypeError, KeyError):
        record = json.loads(_record_file(repository, blob).read_text(encoding="utf-8"))
        model, total = str(record["model"]), int(record["total"])
    path = folder_of(repository) / "blobs" / name
    return PartialFile(repository, path, blob, name.endswith(_RESUMABLE), model, total)


def _record_file(repository: str, blob: str) -> Path:
    return cache_file("downloads", [repository, blob])
