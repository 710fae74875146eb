"""Library context: the library's own context, and its own structure of what it is made with."""

from functools import partial
from typing import Any

import llama_cpp

from localspec.errors import ModelLoadError, OutOfMemoryError
from localspec.gguf.kv_types import kv_types
from localspec.llama import library
from localspec.llama.compute_thread import shielded
from localspec.llama.context_params import CHUNK, OUTPUT_ROWS, ContextParams
from localspec.llama.model import Model
from localspec.llama.rope import LINEAR, NONE, YARN, RopeScaling
from localspec.utils import lack_of_memory
from localspec.utils.option_names import option

# A decode has at most as many rows as the context has cells; trials at load have several.
_LEAST_CELLS = 64
_ROPE_TYPES = {
    NONE: llama_cpp.LLAMA_ROPE_SCALING_TYPE_NONE,
    LINEAR: llama_cpp.LLAMA_ROPE_SCALING_TYPE_LINEAR,
    YARN: llama_cpp.LLAMA_ROPE_SCALING_TYPE_YARN,
}


def library_params(params: ContextParams) -> Any:
    """The library's own structure of them."""
    values = llama_cpp.llama_context_default_params()
    values.n_ctx = max(params.n_ctx, _LEAST_CELLS) * params.texts
    values.n_batch = values.n_ubatch = params.ubatch or CHUNK
    values.n_seq_max = params.texts + params.branches
    # Rows that belong to several sequence ids, as in a tree, need one cache for all texts.
    values.kv_unified = True
    # The library ends the process where this is less than `n_seq_max`.
    values.n_outputs_max = max(OUTPUT_ROWS, values.n_seq_max)
    # Else layers with a sliding window cache the window and one pass.
    values.swa_full = params.swa_full
    # The library sets 0 for architectures without snapshots.
    values.n_rs_seq = params.snapshots
    values.n_threads = values.n_threads_batch = params.threads
    values.flash_attn_type = -1 if params.flash_attention is None else int(params.flash_attention)
    values.type_k, values.type_v = kv_types(params.kv_type)
    values.no_perf = True
    set_rope(values, params.rope)
    return values


def set_rope(values: Any, rope: RopeScaling) -> None:
    """Write it into the library's structure."""
    if rope.scaling:
        values.rope_scaling_type = _ROPE_TYPES[rope.scaling]
    values.rope_freq_scale = 1 / rope.scale if rope.scale else 0.0
    values.rope_freq_base = rope.freq_base or 0.0
    values.yarn_orig_ctx = rope.yarn_orig_ctx or 0


def new_context(model: Model, values: Any) -> Any:
    """The library's context; the caller frees it. values: the library's own structure.

    Raises ModelLoadError if it fails, OutOfMemoryError for lack of memory.
    """
    model.clear_log()
    init = partial(llama_cpp.llama_init_from_model, model.handle, values)
    handle = shielded(init, free=free_context)
    if not handle:
        model.require_workers()
        error = OutOfMemoryError if lack_of_memory.is_said_in(library.logged()) else ModelLoadError
        raise error(
            f"{model.path.name}: a context of {values.n_ctx} tokens cannot be made "
            f"({library.first_error() or 'no reason given'}); try a smaller {option('context')}"
        )
    model.turn_adapters_on(handle)
    return handle


def free_context(handle: Any) -> None:
    """Free the library's context; None is none."""
    if handle:
        shielded(partial(llama_cpp.llama_free, handle))
