"""Long rope: models with one set of rotations for short texts, and another for long ones (Phi-3).

llama.cpp chooses the set by the tokens of a whole cache, so a cache for several texts may give each
of them other logits than a cache of its own.
"""

from localspec.gguf.reader import Header

# A cache is a multiple of so many tokens.
_CELLS_STEP = 256


def short_limit(header: Header) -> int | None:
    """The most tokens of a cache with the rotations of short texts; None: there is one set.

    The first of several files may have no tensors: then the length counts that a set is for.
    """
    original = header.number("rope.scaling.original_context_length")
    if not header.tensors and original:
        limit = original
    elif any("rope_factors_short" in tensor.name for tensor in header.tensors):
        limit = original or header.context_length or 0
    else:
        return None
    # llama.cpp rounds caches up.
    return limit // _CELLS_STEP * _CELLS_STEP


def most_texts(header: Header, n_ctx: int) -> int | None:
    """How many texts of `n_ctx` tokens a cache may hold, with the rotations that one text has.

    None: any number.
    """
    limit = short_limit(header)
    return None if limit is None or n_ctx > limit else limit // n_ctx


def note(header: Header, n_ctx: int, usual: int) -> str | None:
    """One line where a context of `n_ctx` tokens rotates otherwise than the usual one."""
    limit = short_limit(header)
    if limit is None or not n_ctx <= limit < usual:
        return None
    return (
        f"up to a context of {limit} tokens this model rotates as for short texts: its texts are "
        f"other ones than with the usual {usual}"
    )


def rotated_alike(header: Header, n_ctx: int, cached: int) -> int:
    """The tokens of a cache for about `n_ctx`, with the rotations of a cache of `cached` tokens."""
    limit = short_limit(header)
    if limit is None:
        return n_ctx
    return min(n_ctx, limit) if cached <= limit else max(n_ctx, limit + 1)


def properties(header: Header, n_ctx: int) -> dict[str, object]:
    """What saved caches of a text of `n_ctx` tokens have in common with each other.

    The keys in them are rotated. A cache of several texts has the rotations of one (`most_texts`).
    """
    limit = short_limit(header)
    return {} if limit is None else {"long rotations": n_ctx > limit}
