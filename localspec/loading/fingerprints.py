"""Fingerprints: identify model files and library versions."""

import hashlib
import os
from importlib import metadata
from pathlib import Path

from localspec import __version__
from localspec.llama import library

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


def versions(*, constrained: bool) -> dict[str, str]:
    """Versions of the libraries that can change a text. constrained: whether it has a grammar."""
    ours = {"localspec": __version__, "llama_cpp_python": library.version()}
    return {**ours, "llguidance": metadata.version("llguidance")} if constrained else ours
