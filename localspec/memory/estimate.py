"""Memory: what a model and a cache of it will need, as far as the header tells."""

from collections.abc import Iterator, Sequence
from itertools import repeat

import psutil

from localspec.errors import ModelLoadError
from localspec.gguf.reader import Header
from localspec.gguf.types import TENSOR_TYPES
from localspec.utils.format import format_bytes

# More is there for the asking (--ctx); a model's full context often would not fit in memory.
DEFAULT_CONTEXT = 8192
# What keys and values can be kept as, by ggml's number.
KV_TYPES = {
    kind.name.lower(): number
    for number, kind in TENSOR_TYPES.items()
    if kind.name in ("F32", "F16", "BF16", "Q8_0", "Q4_0")
}
# Those whose values only flash attention can read.
QUANTISED = ("q8_0", "q4_0")
# What the library notes of each token a cache has room for, and of each it holds.
_CELL_BYTES = 128
# A token of the vocabulary, its texts and merges, as the library keeps them.
_TOKEN_BYTES = 280
# The buffers of a pass are for so many tokens, with logits of so many, in 32-bit floats.
_PASS, _ROWS, _FLOAT = 512, 63, 4


def default_context(header: Header) -> int:
    """Tokens of text a model gets where nobody says how many."""
    return min(header.context_length or DEFAULT_CONTEXT, DEFAULT_CONTEXT)


def cache_bytes(header: Header, n_ctx: int, kv_type: str = "f16") -> int | None:
    """Bytes of keys and values for `n_ctx` tokens. kv_type: one of KV_TYPES.

    None where the file does not tell, and where most layers keep no keys and values of every token
    (latent attention; recurrent layers between those of attention). Where layers look back on a
    window only, it is more than is needed.
    """
    if any(header.number(key) for key in ("attention.kv_lora_rank", "full_attention_interval")):
        return None
    heads, width = header.number("attention.head_count"), header.number("embedding_length")
    key = header.number("attention.key_length") or (width // heads if width and heads else 0)
    value = header.number("attention.value_length") or key
    _, elements, size = TENSOR_TYPES[KV_TYPES[kv_type]]
    all_heads = sum(_cached_heads(header, heads or 0))
    return n_ctx * all_heads * (key + value) * size // elements or None


def least_bytes(header: Header, n_ctx: int, kv_type: str) -> int:
    """Bytes that a cache takes at the least, and the library's notes on it."""
    windowed = header.number("attention.sliding_window")
    cache = 0 if windowed else cache_bytes(header, n_ctx, kv_type) or 0
    return cache + notes_bytes(n_ctx)


def notes_bytes(n_ctx: int) -> int:
    """Bytes of the library's notes on the tokens of a cache."""
    return n_ctx * _CELL_BYTES


def pass_bytes(header: Header, n_ctx: int, *, flash_attention: bool) -> int:
    """Bytes of the buffers of a pass: what dense models were found to take, about."""
    width, narrow = header.number("embedding_length") or 0, header.number("feed_forward_length")
    experts = header.number("expert_feed_forward_length") or 0
    used = header.number("expert_used_count") or 0
    hidden = max(narrow or 4 * width, experts * used)
    heads = 0 if flash_attention else header.number("attention.head_count") or 0
    layer = _PASS * (4 * width + 3 * hidden + n_ctx * (heads + 1))
    return _FLOAT * (layer + _ROWS * _vocabulary_size(header))


def vocabulary_bytes(header: Header) -> int:
    """Bytes of the library's tables of the vocabulary, about."""
    return _TOKEN_BYTES * _vocabulary_size(header)


def require_room(header: Header, name: str, n_ctx: int, kv_type: str = "f16") -> None:
    """Raise ModelLoadError when the cache alone exceeds the machine's free memory."""
    needed = cache_bytes(header, n_ctx, kv_type)
    free = psutil.virtual_memory().available
    if needed and needed > free:
        raise ModelLoadError(
            f"{name}: a context of {n_ctx} tokens needs {format_bytes(needed)} and "
            f"{format_bytes(free)} are free; try --ctx {n_ctx * free // needed // 2}"
        )


def _vocabulary_size(header: Header) -> int:
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    return len(tokens) if isinstance(tokens, Sequence) else 0


def _cached_heads(header: Header, heads: int) -> Iterator[int]:
    """How many heads' keys each layer keeps."""
    said = header.own("attention.head_count_kv")
    if isinstance(said, Sequence) and not isinstance(said, str):
        return (count for count in said if isinstance(count, int))
    shared = said if isinstance(said, int) and said else heads
    return repeat(shared, header.number("block_count") or 0)
