"""Fingerprints: identify model files and library versions."""

import os
import platform
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from localspec import __version__
from localspec.gguf.fingerprint import fingerprint as fingerprint
from localspec.llama import extra_buffers, library, unfit_gpus
from localspec.llama.devices import can_offload, devices, usual_gpus
from localspec.llama.placement import Placement
from localspec.utils.cores import performance_cores
from localspec.utils.processor import processor_signature


def machine_signature() -> list[list[Any]]:
    """Return what measurements of this machine depend on: the machine, its GPUs, the build."""
    cores = [os.cpu_count(), performance_cores()]
    machine = [platform.node(), *processor_signature(), *cores, can_offload(), *_gpus(None)]
    machine += sorted(unfit_gpus.reasons())
    return [machine, [*library.build_signature(), extra_buffers.usable()]]


def gpus(placement: Placement) -> list[str]:
    """Return what a model's logits depend on beside the processor: this machine's GPUs it is on.

    What is not all of the model comes before them, such as "4 layers", and other machines behind.
    """
    names = usual_gpus() if placement.gpus is None else placement.gpus
    found = _gpus(names) if can_offload() else []
    layers, moe, parts = placement.gpu_layers, placement.cpu_moe, list[str]()
    if layers not in (None, -1):
        parts.append(f"{layers} layers")
    if moe:
        parts.append(f"{'no' if moe == -1 else f'without {moe} layers of'} experts")
    others = ["other machines"] if placement.workers and layers != 0 else []
    return [*parts, *found, *others] if found or others else []


def _gpus(names: Sequence[str] | None) -> list[str]:
    """GPUs of this machine, no workers, with what they are. names: None for all there are."""
    return [
        f"{each.name} ({each.description})"
        for each in devices()
        if "gpu" in each.kind and not each.name.startswith("RPC")
        if names is None or each.name.lower() in map(str.lower, names)
    ]


def versions(*, constrained: bool) -> dict[str, str]:
    """Versions of the libraries that can change a text. constrained: whether it has a grammar."""
    ours = {"localspec": __version__, "llama_cpp_python": library.version()}
    return {**ours, "llguidance": metadata.version("llguidance")} if constrained else ours
