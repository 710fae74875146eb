"""Shared blobs: contents that several repositories of huggingface_hub's cache have in common.

Newer versions of huggingface_hub keep such a content once, beside the repositories, with a link
from each. Whoever deletes the last link has to delete the content too.
"""

from collections.abc import Collection
from pathlib import Path

from localspec.gguf.files import bytes_of
from localspec.hub.store import hub_cache

try:
    from huggingface_hub.utils import _shared_blobs
except ImportError:  # an older one: a blob is always the repository's own
    _shared_blobs = None  # type: ignore[assignment]


def bytes_freed(blobs: Collection[Path]) -> int:
    """Return the bytes that `delete_blobs` would free."""
    shared = _shared(blobs)
    own = bytes_of(blob for blob in blobs if blob not in shared and not blob.is_symlink())
    return own + sum(
        _shared_blobs.expected_shared_blob_freed_size(
            payload, blob_paths_to_delete={*blobs}, cache_dir=hub_cache()
        )
        for payload in {*shared.values()}
    )


def delete_blobs(blobs: Collection[Path]) -> None:
    """Delete blobs of repositories, and shared contents that nothing else links to then.

    Raises OSError.
    """
    shared = _shared(blobs)
    for blob in blobs:
        blob.unlink(missing_ok=True)
    for payload in {*shared.values()}:
        _shared_blobs.sweep_shared_blob(payload, cache_dir=hub_cache())


def _shared(blobs: Collection[Path]) -> dict[Path, Path]:
    """Return the shared content of each blob that links to one."""
    if _shared_blobs is None or not _shared_blobs.is_shared_blobs_dir(
        _shared_blobs.shared_blobs_dir(hub_cache())
    ):
        return {}
    found = {blob: _shared_blobs.shared_blob_target(blob, hub_cache()) for blob in blobs}
    return {blob: payload for blob, payload in found.items() if payload}
