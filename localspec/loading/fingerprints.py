"""Fingerprints: identify model files and library versions."""

import hashlib
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from localspec import __version__
from localspec.llama import extra_buffers, library
from localspec.llama.devices import can_offload

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


def machine_signature() -> list[list[Any]]:
    """Return what measurements of this machine depend on: the machine, and the library's build."""
    machine = [platform.node(), platform.machine(), os.cpu_count(), can_offload()]
    return [machine, [*library.build_signature(), extra_buffers.usable()]]


def versions(*, constrained: bool) -> dict[str, str]:
    """Versions of the libraries that can change a text. constrained: whether it has a grammar."""
    ours = {"localspec": __version__, "llama_cpp_python": library.version()}
    return {**ours, "llguidance": metadata.version("llguidance")} if constrained else ours
