"""Memory: what a context will need, before it is made."""

from collections.abc import Sequence

import psutil

from localspec.errors import ModelLoadError
from localspec.models.gguf import Header

_BYTES_PER_VALUE = 2  # keys and values are cached as 16-bit floats
_GIB = 2**30


def cache_bytes(header: Header, n_ctx: int) -> int | None:
    """Bytes of keys and values for `n_ctx` tokens.

    None where the file does not tell, and where most layers keep no keys and values of every token
    (latent attention; recurrent layers between those of attention).
    """
    if any(_whole(header, key) for key in ("attention.kv_lora_rank", "full_attention_interval")):
        return None
    layers = _whole(header, "block_count")
    heads = _whole(header, "attention.head_count")
    width = _whole(header, "embedding_length")
    per_layer = header.metadata.get(f"{header.architecture}.attention.head_count_kv")
    if isinstance(per_layer, Sequence) and not isinstance(per_layer, str):
        all_heads = sum(count for count in per_layer if isinstance(count, int))
    else:
        all_heads = (_whole(header, "attention.head_count_kv") or heads or 0) * (layers or 0)
    key = _whole(header, "attention.key_length") or (width // heads if width and heads else 0)
    value = _whole(header, "attention.value_length") or key
    return n_ctx * all_heads * (key + value) * _BYTES_PER_VALUE or None


def require_room(header: Header, name: str, n_ctx: int) -> None:
    """Raise ModelLoadError when the cache alone exceeds the machine's free memory."""
    needed = cache_bytes(header, n_ctx)
    free = psutil.virtual_memory().available
    if needed and needed > free:
        raise ModelLoadError(
            f"{name}: a context of {n_ctx} tokens needs {needed / _GIB:.1f} GiB and "
            f"{free / _GIB:.1f} GiB are free; try --ctx {n_ctx * free // needed // 2}"
        )


def _whole(header: Header, key: str) -> int | None:
    """A whole number of the architecture."""
    value = header.metadata.get(f"{header.architecture}.{key}")
    return value if isinstance(value, int) else None
