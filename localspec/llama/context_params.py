"""Context parameters: what the library is asked for when a context is made."""

from typing import Any

import llama_cpp

from localspec.errors import ModelLoadError, OutOfMemoryError
from localspec.llama import lack_of_memory, library
from localspec.llama.model import Model
from localspec.llama.rope import UNSCALED, RopeScaling
from localspec.speculation.draft import MAX_DEPTH

# ggml's type of keys and values, or of both.
KVType = int | tuple[int, int]
# The usual number of prompt tokens per pass: few enough that a generation can be cancelled quickly.
# It is the most rows of a decode too.
CHUNK = 512
# With fewer, the pass of a draft would be computed in parts; with more, buffers take gigabytes.
LEAST_CHUNK, MOST_CHUNK = 64, 8192
# A decode has at most as many rows as the context has cells; trials at load have several.
_LEAST_CELLS = 64
# Attention is computed over a multiple of so many cells: the least that all cells in use fit in.
ATTENTION_STEP = 256
# The most rows with logits in one decode; each row reserves n_vocab floats of compute buffer.
OUTPUT_ROWS = MAX_DEPTH + 1


def context_params(
    n_ctx: int,
    *,
    threads: int,
    flash_attention: bool | None,
    kv_type: KVType,
    swa_full: bool = False,
    snapshots: int = 0,
    texts: int = 1,
    branches: int = 0,
    ubatch: int | None = None,
    rope: RopeScaling = UNSCALED,
) -> Any:
    """The library's parameters for a context; the arguments are those of Context."""
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = max(n_ctx, _LEAST_CELLS) * texts
    params.n_batch = params.n_ubatch = ubatch or CHUNK
    params.n_seq_max = texts + branches
    # Rows that belong to several sequence ids, as in a tree, need one cache for all texts.
    params.kv_unified = True
    # The library ends the process where this is less than `n_seq_max`.
    params.n_outputs_max = max(OUTPUT_ROWS, params.n_seq_max)
    # Else layers with a sliding window cache the window and one pass.
    params.swa_full = swa_full
    # The library sets 0 for architectures without snapshots.
    params.n_rs_seq = snapshots
    params.n_threads = params.n_threads_batch = threads
    params.flash_attn_type = -1 if flash_attention is None else int(flash_attention)
    keys_and_values = kv_type if isinstance(kv_type, tuple) else (kv_type, kv_type)
    params.type_k, params.type_v = keys_and_values
    params.no_perf = True
    rope.apply(params)
    return params


def new_context(model: Model, params: Any) -> Any:
    """The library's context; the caller frees it.

    Raises ModelLoadError if it fails, OutOfMemoryError for lack of memory.
    """
    model.clear_log()
    handle = llama_cpp.llama_init_from_model(model.handle, params)
    if not handle:
        model.require_workers()
        error = OutOfMemoryError if lack_of_memory.is_said_in(library.logged()) else ModelLoadError
        raise error(
            f"{model.path.name}: a context of {params.n_ctx} tokens cannot be made "
            f"({library.first_error() or 'no reason given'}); try a smaller one with --ctx"
        )
    return handle
