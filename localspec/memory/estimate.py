"""Memory estimates: the bytes that a model and its cache take, from the header of its file."""

from collections.abc import Callable, Sequence

import psutil

from localspec.errors import OutOfMemoryError
from localspec.gguf import assistant
from localspec.gguf.heads import layers_of, vocabulary_size
from localspec.gguf.kv_types import kv_types
from localspec.gguf.reader import Header
from localspec.gguf.types import TENSOR_TYPES
from localspec.llama.context_params import OUTPUT_ROWS
from localspec.utils.format import format_bytes
from localspec.utils.option_names import options

# Where nobody names a context (--ctx): the full context of many models would not fit in memory.
DEFAULT_CONTEXT = 8192
# The library's metadata of one cell of a cache, which holds one token.
_CELL_BYTES = 128
# One token of the vocabulary in the library's tables, with its texts and merges.
_TOKEN_BYTES = 280
# Bytes of a number in compute buffers.
_FLOAT = 4


def default_context(most: int | None) -> int:
    """Return the tokens of text that a model gets where the user does not say how many.

    most: those that it makes sense of; None: not known.
    """
    return min(most or DEFAULT_CONTEXT, DEFAULT_CONTEXT)


def cache_bytes(
    header: Header, n_ctx: int, kv_type: str = "f16", *, mtp: bool = False
) -> int | None:
    """Return the bytes of keys and values for `n_ctx` tokens. kv_type: as in `gguf.kv_types`.

    mtp: of the model's heads of multi-token prediction, in place of its layers.
    None where the header does not tell, and where most layers do not keep keys and values of every
    token (latent attention; hybrid models). Too high for layers with a sliding window.
    """
    if header.architecture == assistant.ARCHITECTURE:
        return 0  # it reads its target's cache
    if header.number("attention.kv_lora_rank"):
        return None
    if header.number("full_attention_interval") and not mtp:
        return None
    count, width = header.number("attention.head_count"), header.number("embedding_length")
    key = header.number("attention.key_length") or (width // count if width and count else 0)
    value = header.number("attention.value_length") or key
    types = map(TENSOR_TYPES.__getitem__, kv_types(kv_type))
    (_, key_block, key_size), (_, value_block, value_size) = types
    all_heads = _cached_heads(header, count or 0, mtp=mtp)
    keys = n_ctx * all_heads * key * key_size // key_block
    return keys + n_ctx * all_heads * value * value_size // value_block or None


def least_cache_bytes(header: Header, n_ctx: int, kv_type: str, *, mtp: bool = False) -> int:
    """Return the bytes that a cache and its cells take at least; `mtp` as in `cache_bytes`."""
    windowed = header.number("attention.sliding_window")
    cache = 0 if windowed else cache_bytes(header, n_ctx, kv_type, mtp=mtp) or 0
    return cache + cell_bytes(n_ctx)


def cell_bytes(n_ctx: int) -> int:
    """Return the bytes of the library's metadata for the cells of a cache of `n_ctx` tokens."""
    return n_ctx * _CELL_BYTES


def compute_buffer_bytes(header: Header, n_ctx: int, *, flash_attention: bool, ubatch: int) -> int:
    """Estimate the bytes of the compute buffers, from those that were measured of dense models.

    ubatch: the most rows that are computed at once.
    """
    width, narrow = header.number("embedding_length") or 0, header.number("feed_forward_length")
    experts = header.number("expert_feed_forward_length") or 0
    used = header.number("expert_used_count") or 0
    hidden = max(narrow or 4 * width, experts * used)
    heads = 0 if flash_attention else header.number("attention.head_count") or 0
    layer = ubatch * (4 * width + 3 * hidden + n_ctx * (heads + 1))
    return _FLOAT * (layer + OUTPUT_ROWS * vocabulary_size(header))


def work_buffer_bytes(header: Header, n_ctx: int, *, ubatch: int) -> int:
    """Return the bytes of the processor's own buffer for attention without flash attention.

    It multiplies the weights of attention with a cache of 16-bit floats, and makes them such floats
    first. The library counts this buffer nowhere, and makes it in the first long pass.
    """
    return 2 * n_ctx * ubatch * (header.number("attention.head_count") or 0)


def vocabulary_bytes(header: Header) -> int:
    """Estimate the bytes of the library's tables of the vocabulary."""
    return _TOKEN_BYTES * vocabulary_size(header)


def require_room(
    header: Header,
    name: str,
    n_ctx: int,
    kv_type: str = "f16",
    *,
    texts: int = 1,
    mtp: bool = False,
    measured: Callable[[], int | None] = lambda: None,
) -> None:
    """Raise OutOfMemoryError where the cache alone takes more than the machine's free memory.

    texts: for how many it has room. mtp: as in `cache_bytes`. measured: asks the library what the
    cache of one text takes, where the estimate counts the tokens that a sliding window forgets.
    """
    free, several = psutil.virtual_memory().available, 0
    if texts > 1:
        several = least_cache_bytes(header, n_ctx * texts, kv_type, mtp=mtp)
    one = cache_bytes(header, n_ctx, kv_type, mtp=mtp) or 0
    if one > free >= cell_bytes(n_ctx) and header.number("attention.sliding_window"):
        one = measured() or one
    for what, needed in (
        (f"{texts} texts of {n_ctx} tokens need", several),
        (f"a context of {n_ctx} tokens needs", one),
    ):
        if needed > free:
            raise OutOfMemoryError(
                f"{name}: {what} {format_bytes(needed)} and {format_bytes(free)} are free; "
                f"try {options(context=n_ctx * free // needed // 2)}"
            )


def _cached_heads(header: Header, heads: int, *, mtp: bool) -> int:
    """Return the number of key-value heads of all layers. mtp: as in `cache_bytes`."""
    found, trunk = header.own("attention.head_count_kv"), layers_of(header)
    if isinstance(found, Sequence) and not isinstance(found, str):
        per_layer = [count for count in found if isinstance(count, int)]
        return sum(per_layer[trunk:] if mtp else per_layer[:trunk])
    layers = (header.number("block_count") or 0) - trunk if mtp else trunk
    return layers * (found if isinstance(found, int) and found else heads)
