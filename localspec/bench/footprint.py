"""Footprint: the memory that models, caches and the whole process take."""

import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from localspec.gguf.reader import read_header
from localspec.memory.estimate import cache_bytes

if sys.platform != "win32":
    import resource


@dataclass(frozen=True, slots=True)
class Footprint:
    """A model and one cache of it, in bytes. cache: None where the file does not tell."""

    weights: int
    cache: int | None


def footprint(model: Path, weights: int, context: int) -> Footprint:
    """Of a model with so many bytes of weights and a cache of `context` tokens."""
    return Footprint(weights, cache_bytes(read_header(model), context))


def peak_resident() -> int:
    """The most memory this process has had in use, in bytes, mapped files included."""
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
