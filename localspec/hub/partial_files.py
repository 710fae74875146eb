"""Partial files: what interrupted downloads left in huggingface_hub's cache."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.gguf.files import bytes_of
from localspec.hub.store import folder_of
from localspec.utils.paths import cache_file
from localspec.utils.stored_json import stored, try_to_store

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
    try_to_store(_record_file(repository, blob), {"model": model, "total": total})


def _partial_file(repository: str, name: str) -> PartialFile:
    blob = name.partition(".")[0]
    model, total = stored(_record_file(repository, blob), _model_and_total) or (None, None)
    path = folder_of(repository) / "blobs" / name
    return PartialFile(repository, path, blob, name.endswith(_RESUMABLE), model, total)


def _model_and_total(record: Any) -> tuple[str, int]:
    model, total = record["model"], record["total"]
    if not isinstance(model, str) or not isinstance(total, int) or not 0 <= total < 1 << 63:
        raise TypeError("not a model and its bytes")
    return model, total


def _record_file(repository: str, blob: str) -> Path:
    return cache_file("downloads", [repository.lower(), blob])
