"""Dry run: ask the library how much memory a model and its cache would take.

A model loaded with `no_alloc` has a header and no weights. What the library logs while it makes a
context of such a model is what a real context takes, to a hundredth of a MiB; nothing of it is
allocated.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import llama_cpp

from localspec.llama import library
from localspec.llama.compute_thread import shielded
from localspec.llama.context_params import ContextParams
from localspec.llama.library_context import free_context, library_params
from localspec.llama.model_params import model_params
from localspec.llama.placement import Placement
from localspec.llama.workers import label
from localspec.utils.closing import Closing

_HOST = "CPU"
_MIB = 2**20
_LAYER = re.compile(r"load_tensors: layer +(\d+) assigned to device (\S+),")
_LAYER_OF_CACHE = re.compile(r"layer +\d+: dev = (\S+)")
_CACHE = re.compile(r": size = +([\d.]+) MiB \(")
_COMPUTE_BUFFER = re.compile(r"(\S+) compute buffer size = +([\d.]+) MiB")


@dataclass(frozen=True, slots=True)
class ContextMemory:
    """Memory of a context, in bytes by device: its cache and its compute buffers."""

    cache: Mapping[str, int]
    compute_buffers: Mapping[str, int]


class DryModel(Closing):
    """A model without weights, to ask what its contexts would take. Close it, or use `with`.

    layers: the device of each layer; the last is that of the output. It is empty, and every answer
    None, where the library refuses the model. placement: as in Model; a worker is called by its
    address. mtp: whether contexts are those of its heads of multi-token prediction.
    """

    def __init__(self, path: Path, placement: Placement, *, mtp: bool = False) -> None:
        loading = model_params(placement, mtp=mtp)
        params = loading.values
        self._mtp = mtp
        self._handle: Any = None
        self.layers: dict[int, str] = {}
        params.no_alloc = True
        params.load_mode = llama_cpp.LLAMA_LOAD_MODE_NONE
        with library.captured_log() as lines:
            load = partial(llama_cpp.llama_model_load_from_file, bytes(path), params)
            self._handle = shielded(load, free=_free)
        found = (_LAYER.search(line) for line in lines)
        self.layers = {int(each[1]): label(each[2]) for each in found if each}

    def context_memory(self, params: ContextParams) -> ContextMemory | None:
        """Return what such a context takes; None if there is none."""
        if not self._handle:
            return None
        values = library_params(params)
        if self._mtp:
            values.ctx_type = llama_cpp.LLAMA_CONTEXT_TYPE_MTP
        with library.captured_log() as lines:
            init = partial(llama_cpp.llama_init_from_model, self._handle, values)
            context = shielded(init, free=free_context)
        if not context:
            return None
        free_context(context)
        return parse_context_memory(lines)

    def close(self) -> None:
        """Free the model."""
        handle, self._handle = self._handle, None
        _free(handle)


def _free(model: Any) -> None:
    if model:
        shielded(partial(llama_cpp.llama_model_free, model))


def parse_context_memory(lines: Iterable[str]) -> ContextMemory:
    """Read the memory of a context from the lines that the library logged while it made one."""
    cache, compute_buffers, layers = Counter[str](), Counter[str](), Counter[str]()
    for line in lines:
        if found := _LAYER_OF_CACHE.search(line):
            layers[label(found[1])] += 1
        elif found := _CACHE.search(line):
            # Its layers were named before; those of one cache are all of a size.
            for device, count in (layers or Counter({_HOST: 1})).items():
                cache[device] += int(float(found[1]) * _MIB) * count // (layers.total() or 1)
            layers.clear()
        elif found := _COMPUTE_BUFFER.search(line):
            compute_buffers[_device(found[1])] += int(float(found[2]) * _MIB)
    return ContextMemory(cache, compute_buffers)


def _device(buffer: str) -> str:
    """Return the device of a buffer type by its name: CUDA_Host is main memory, CUDA0 is not."""
    return _HOST if buffer.startswith(_HOST) or buffer.endswith("_Host") else label(buffer)
