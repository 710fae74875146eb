"""Fingerprints: identify model files and library versions."""

import os
import platform
from importlib import metadata
from typing import Any

from localspec import __version__
from localspec.gguf.fingerprint import fingerprint as fingerprint
from localspec.llama import extra_buffers, library
from localspec.llama.devices import can_offload, devices


def machine_signature() -> list[list[Any]]:
    """Return what measurements of this machine depend on: the machine, its GPUs, the build."""
    machine = [platform.node(), platform.machine(), os.cpu_count(), can_offload(), *_gpus()]
    return [machine, [*library.build_signature(), extra_buffers.usable()]]


def _gpus() -> list[str]:
    """The GPUs that models can be put on: another one, or one more, is another machine."""
    local = (each for each in devices() if "gpu" in each.kind and not each.name.startswith("RPC"))
    return [f"{each.name} {each.description}" for each in local]


def versions(*, constrained: bool) -> dict[str, str]:
    """Versions of the libraries that can change a text. constrained: whether it has a grammar."""
    ours = {"localspec": __version__, "llama_cpp_python": library.version()}
    return {**ours, "llguidance": metadata.version("llguidance")} if constrained else ours
