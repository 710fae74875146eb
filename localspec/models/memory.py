"""Memory: what a context will need, before it is made."""

from collections.abc import Sequence

import psutil

from localspec.errors import ModelLoadError
from localspec.models.gguf import Header

_BYTES_PER_VALUE = 2  # keys and values are cached as 16-bit floats
_GIB = 2**30


def cache_bytes(header: Header, n_ctx: int) -> int | None:
    """Bytes of keys and values for `n_ctx` tokens.

    None where the file does not tell, and where layers cache less than every token or compress
    it (sliding windows, latent attention).
    """
    if _number(header, "attention.sliding_window") or _number(header, "attention.kv_lora_rank"):
        return None
    layers = _number(header, "block_count")
    heads = _number(header, "attention.head_count")
    width = _number(header, "embedding_length")
    if not layers or not heads or not width:
        return None
    kv_heads = _number(header, "attention.head_count_kv") or heads
    key = _number(header, "attention.key_length") or width // heads
    value = _number(header, "attention.value_length") or width // heads
    return n_ctx * layers * kv_heads * (key + value) * _BYTES_PER_VALUE


def require_room(header: Header, name: str, n_ctx: int) -> None:
    """Raise ModelLoadError when the cache alone exceeds the machine's free memory."""
    needed = cache_bytes(header, n_ctx)
    free = psutil.virtual_memory().available
    if needed and needed > free:
        raise ModelLoadError(
            f"{name}: a context of {n_ctx} tokens needs {needed / _GIB:.1f} GiB and "
            f"{free / _GIB:.1f} GiB are free; try --ctx {n_ctx * free // needed // 2}"
        )


def _number(header: Header, key: str) -> int | None:
    """A whole number of the architecture; the largest where there is one per layer."""
    value = header.metadata.get(f"{header.architecture}.{key}")
    if isinstance(value, int):
        return value
    if isinstance(value, Sequence):
        return max((item for item in value if isinstance(item, int)), default=None)
    return None
