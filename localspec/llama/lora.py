"""LoRA adapters of a loaded model, and the contexts that they are on in."""

import ctypes
import re
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import llama_cpp

from localspec.errors import ModelLoadError, OutOfMemoryError
from localspec.gguf.lora import Lora
from localspec.gguf.reader import display_name
from localspec.llama import library
from localspec.llama.compute_thread import shielded
from localspec.utils import lack_of_memory

# What the library logs each time that it plans a context's graph, and what the graph has more for
# each matrix that an adapter changes: two products, a scale and a sum.
_NODES = re.compile(r"graph: nodes += +(\d+)")
_NODES_PER_MATRIX = 4


class Adapters:
    """Adapters beside the weights of a model, with which the library frees them.

    model: the library's pointer. path: of its file. loras: their headers were checked by
    `gguf.lora`. Raises ModelLoadError.
    """

    def __init__(self, model: Any, path: Path, loras: Sequence[Lora]) -> None:
        found = [_loaded(model, path, each) for each in loras]
        self._pointers = (llama_cpp.llama_adapter_lora_p_ctypes * len(found))(*found)
        self._scales = (ctypes.c_float * len(found))(*(each.scale for each in loras))

    def turn_on(self, context: Any) -> None:
        """From now on a context of the model computes with them. context: the library's pointer."""
        if len(self._scales):
            llama_cpp.llama_set_adapters_lora(
                context, self._pointers, len(self._scales), self._scales
            )


def changed_matrices(lines: Iterable[str]) -> int | None:
    """How many matrices the adapters of a context change.

    lines: what the library logged until the end of its first pass: it plans the graph without the
    adapters when it makes the context, and with them in that pass. None where it did not say.
    """
    counts = [int(found[1]) for line in lines if (found := _NODES.search(line))]
    return (counts[-1] - counts[-2]) // _NODES_PER_MATRIX if len(counts) > 1 else None


def _loaded(model: Any, path: Path, lora: Lora) -> Any:
    library.clear_log()
    adapter = shielded(partial(llama_cpp.llama_adapter_lora_init, model, bytes(lora.path)))
    if adapter:
        return adapter
    what = f"{display_name(lora.path)} cannot be loaded with {path.name}"
    error = OutOfMemoryError if lack_of_memory.is_said_in(library.logged()) else ModelLoadError
    raise error(
        f"{what} ({library.first_error() or 'no reason given'}); leave it out, or merge it into "
        "its model (llama-export-lora)"
    )
