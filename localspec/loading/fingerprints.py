"""Fingerprints: what tells one model file, and one set of library versions, from another."""

import hashlib
import os
from importlib import metadata
from pathlib import Path

from localspec import __version__
from localspec.llama import library

# Enough of a file to tell models and quantisations apart without reading gigabytes.
_HASHED_AT_EACH_END = 4 * 2**20


def fingerprint(path: Path) -> str:
    """SHA-256 of a file's size, beginning and end."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        digest.update(file.read(_HASHED_AT_EACH_END))
        file.seek(max(0, size - _HASHED_AT_EACH_END), os.SEEK_SET)
        digest.update(file.read())
    return digest.hexdigest()


def versions(*, constrained: bool) -> dict[str, str]:
    """The versions whose change may change a text. constrained: whether a grammar shapes it."""
    ours = {"localspec": __version__, "llama_cpp_python": library.version()}
    return {**ours, "llguidance": metadata.version("llguidance")} if constrained else ours
