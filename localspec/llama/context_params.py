"""Context parameters: what the library is asked for when a context is made."""

from dataclasses import dataclass
from typing import Any

import llama_cpp

from localspec.errors import ModelLoadError, OutOfMemoryError
from localspec.llama import lack_of_memory, library
from localspec.llama.model import Model
from localspec.llama.rope import UNSCALED, RopeScaling
from localspec.speculation.draft import MAX_DEPTH

# ggml's types of keys and of values.
KVType = tuple[int, int]
F16: KVType = (llama_cpp.GGML_TYPE_F16, llama_cpp.GGML_TYPE_F16)
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


@dataclass(frozen=True, slots=True)
class ContextParams:
    """What a context is made with.

    n_ctx: the most tokens of one text. threads: CPU threads. texts: how many texts there is room
    for. branches: how many further branches, beside the first of each, drafts may have, those of
    all texts together; 0 where only chains are scored. flash_attention: None lets the library
    decide. kv_type: of the cache. swa_full: whether layers with a sliding window keep the whole
    text; else their cells are used again behind the window, in an order that depends on which
    drafts were rejected, and attention adds in the order of the cells. snapshots: how many tokens
    of a pass a recurrent model can roll back without a checkpoint, if the library supports that.
    ubatch: the most rows computed at once; None: the usual number. rope: see there.
    """

    n_ctx: int
    threads: int = 1
    texts: int = 1
    branches: int = 0
    flash_attention: bool | None = None
    kv_type: KVType = F16
    swa_full: bool = False
    snapshots: int = 0
    ubatch: int | None = None
    rope: RopeScaling = UNSCALED

    def for_library(self) -> Any:
        """The library's own structure of them."""
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = max(self.n_ctx, _LEAST_CELLS) * self.texts
        params.n_batch = params.n_ubatch = self.ubatch or CHUNK
        params.n_seq_max = self.texts + self.branches
        # Rows that belong to several sequence ids, as in a tree, need one cache for all texts.
        params.kv_unified = True
        # The library ends the process where this is less than `n_seq_max`.
        params.n_outputs_max = max(OUTPUT_ROWS, params.n_seq_max)
        # Else layers with a sliding window cache the window and one pass.
        params.swa_full = self.swa_full
        # The library sets 0 for architectures without snapshots.
        params.n_rs_seq = self.snapshots
        params.n_threads = params.n_threads_batch = self.threads
        params.flash_attn_type = -1 if self.flash_attention is None else int(self.flash_attention)
        params.type_k, params.type_v = self.kv_type
        params.no_perf = True
        self.rope.apply(params)
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
