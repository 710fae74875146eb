"""Memory use: what a model and its cache take, as the library says.

Its `no_alloc` models have a header and no weights: what it logs while it makes a context of one is
what a real one will take, to a hundredth of a MiB, and nothing of it is allocated.
"""

import ctypes
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp

from localspec.llama.context import context_params
from localspec.llama.model import model_params

_HOST = "CPU"
_MIB = 2**20
_LAYER = re.compile(r"load_tensors: layer +(\d+) assigned to device (\S+),")
_CACHED_LAYER = re.compile(r"layer +\d+: dev = (\S+)")
_CACHE = re.compile(r": size = +([\d.]+) MiB \(")
_PASS = re.compile(r"(\S+) compute buffer size = +([\d.]+) MiB")


@dataclass(frozen=True, slots=True)
class Use:
    """Bytes by device: of a cache, and of the buffers its passes need."""

    cache: Mapping[str, int]
    passes: Mapping[str, int]


class DryModel:
    """A model without weights, to ask what contexts of it would take. Close it, or use `with`.

    layers: the device of each layer; the last is that of the output. Empty, and every answer None,
    where this build of the library knows no such models or refuses this one.
    """

    def __init__(self, path: Path, *, gpu_layers: int | None) -> None:
        params = model_params(gpu_layers)
        self._handle: Any = None
        self.layers: dict[int, str] = {}
        if not hasattr(params, "no_alloc"):
            return
        params.no_alloc = True
        params.load_mode = llama_cpp.LLAMA_LOAD_MODE_NONE
        with logged() as lines:
            self._handle = llama_cpp.llama_model_load_from_file(bytes(path), params)
        found = (_LAYER.search(line) for line in lines)
        self.layers = {int(each[1]): each[2] for each in found if each}

    def use(
        self, n_ctx: int, *, kv_type: int, flash_attention: bool | None, snapshots: int = 0
    ) -> Use | None:
        """What a context like this takes; None where it cannot be made."""
        if not self._handle:
            return None
        params = context_params(
            n_ctx,
            threads=1,
            flash_attention=flash_attention,
            kv_type=kv_type,
            snapshots=snapshots,
        )
        with logged() as lines:
            context = llama_cpp.llama_init_from_model(self._handle, params)
        if not context:
            return None
        llama_cpp.llama_free(context)
        return use_of(lines)

    def close(self) -> None:
        """Forget it."""
        handle, self._handle = self._handle, None
        if handle:
            llama_cpp.llama_model_free(handle)

    def __enter__(self) -> "DryModel":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


@contextmanager
def logged() -> Iterator[list[str]]:
    """What the library logs meanwhile, line by line; it is captured as ever as well."""
    lines: list[str] = []
    interrupted: list[KeyboardInterrupt] = []
    usual, data = llama_cpp.llama_log_callback(), ctypes.c_void_p()
    llama_cpp.llama_log_get(ctypes.byref(usual), ctypes.byref(data))

    @llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
    def keep(level: int, text: bytes, user_data: Any) -> None:
        try:
            lines.append(text.decode("utf-8", "replace"))
            usual(level, text, user_data)
        except KeyboardInterrupt as interrupt:
            # ctypes prints and forgets what a callback raises.
            interrupted.append(interrupt)

    llama_cpp.llama_log_set(keep, data)
    try:
        yield lines
    finally:
        llama_cpp.llama_log_set(usual, data)
    if interrupted:
        raise interrupted[0]


def use_of(lines: Iterable[str]) -> Use:
    """What the library logged, while it made a context, of its cache and buffers."""
    cache, passes, layers = Counter[str](), Counter[str](), Counter[str]()
    for line in lines:
        if found := _CACHED_LAYER.search(line):
            layers[found[1]] += 1
        elif found := _CACHE.search(line):
            # Its layers were named before; those of one cache are all of a size.
            for device, count in (layers or Counter({_HOST: 1})).items():
                cache[device] += int(float(found[1]) * _MIB) * count // (layers.total() or 1)
            layers.clear()
        elif found := _PASS.search(line):
            passes[_device(found[1])] += int(float(found[2]) * _MIB)
    return Use(cache, passes)


def _device(buffer: str) -> str:
    """The device of a kind of buffer, by its name: CUDA_Host is main memory, CUDA0 is not."""
    return _HOST if buffer.startswith(_HOST) or buffer.endswith("_Host") else buffer
