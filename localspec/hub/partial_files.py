"""Parts: what interrupted downloads left in huggingface_hub's cache."""

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
class Part:
    """The beginning of a file.

    blob: what the whole would be called. resumable: `localspec pull` goes on with it (what
    huggingface_hub leaves, nothing does). model: of which model it is, and total: how many bytes
    the file has; None where nobody said.
    """

    repository: str
    path: Path
    blob: str
    resumable: bool
    model: str | None
    total: int | None

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return bytes_of([self.path])


def parts_of(repository: str) -> list[Part]:
    """What interrupted downloads of a repository left."""
    try:
        names = sorted(os.listdir(folder_of(repository) / "blobs"))
    except OSError:
        return []
    # A whole blob is named by a hash alone.
    return [_part(repository, name) for name in names if "." in name[1:]]


def announce(repository: str, blob: str, model: str, total: int) -> None:
    """Remember what a file is that is about to be downloaded, for who meets a part of it.

    blob: its name in the cache. model: what to call the model it belongs to. total: bytes.
    """
    with suppress(OSError):
        write_atomically(_note(repository, blob), json.dumps({"model": model, "total": total}))


def _part(repository: str, name: str) -> Part:
    blob = name.partition(".")[0]
    model = total = None
    with suppress(OSError, ValueError, TypeError, KeyError):
        said = json.loads(_note(repository, blob).read_text(encoding="utf-8"))
        model, total = str(said["model"]), int(said["total"])
    path = folder_of(repository) / "blobs" / name
    return Part(repository, path, blob, name.endswith(_RESUMABLE), model, total)


def _note(repository: str, blob: str) -> Path:
    return cache_file("downloads", [repository, blob])
