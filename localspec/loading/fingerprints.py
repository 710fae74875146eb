"""Fingerprints: identify model files and library versions."""

import os
import platform
from importlib import metadata
from typing import Any

from localspec import __version__
from localspec.gguf.fingerprint import fingerprint as fingerprint
from localspec.llama import extra_buffers, library
from localspec.llama.devices import can_offload


def machine_signature() -> list[list[Any]]:
    """Return what measurements of this machine depend on: the machine, and the library's build."""
    machine = [platform.node(), platform.machine(), os.cpu_count(), can_offload()]
    return [machine, [*library.build_signature(), extra_buffers.usable()]]


def versions(*, constrained: bool) -> dict[str, str]:
    """Versions of the libraries that can change a text. constrained: whether it has a grammar."""
    ours = {"localspec": __version__, "llama_cpp_python": library.version()}
    return {**ours, "llguidance": metadata.version("llguidance")} if constrained else ours
