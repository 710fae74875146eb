"""Copies: files of revisions where the system has no links, and which content each of them has.

Where a file of a revision is a link, the blob that it leads to is named by its hash. A copy says
nothing of its content, and reading all of it takes as long as the disk needs for some gigabytes. So
the hash that a download has checked is kept until the file changes.
"""

from pathlib import Path

from localspec.hub.store import blob_of
from localspec.utils.paths import cache_file, stat_signature
from localspec.utils.stored_json import stored, try_to_store


def record_copy(path: Path, etag: str) -> None:
    """Record the hash of a file's content. Raises OSError."""
    try_to_store(cache_file("copies", stat_signature(path)), etag)


def etag_of(path: Path) -> str | None:
    """Return the hash of a file of a revision; None for a copy of which none is known."""
    if (blob := blob_of(path)) != path:
        return blob.name
    try:
        return stored(cache_file("copies", stat_signature(path)), str)
    except OSError:
        return None
