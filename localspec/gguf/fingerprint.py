"""Fingerprint: identifies the content of a model file without reading all of it."""

import hashlib
import os
from pathlib import Path

# Enough bytes to distinguish models and quantisations, without reading gigabytes.
_HASHED_AT_EACH_END = 4 * 2**20


def fingerprint(path: Path) -> str:
    """Return the SHA-256 of a file's size, first bytes and last bytes."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        digest.update(file.read(_HASHED_AT_EACH_END))
        file.seek(max(0, size - _HASHED_AT_EACH_END), os.SEEK_SET)
        digest.update(file.read())
    return digest.hexdigest()
