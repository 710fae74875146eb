"""Layout: which indices of a large model hold the weights of the small model it computes.

The hidden state, the query heads and the feed-forward units of the source stand in the large model
in several equal copies. A matrix that reads such an axis is written as a sum, W = W1 + W2 + ...:
each part is the rounded rest of the parts before it, and reads a copy of its own, so that
W h = W1 h + W2 h + ... This way even coarse types store the source's weights nearly exactly. The
indices between and behind the copies never change the copies.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.errors import InvalidValueError
from localspec.scaling.shape import Shape

# Weights in the largest block of any quantised type.
ALIGNMENT = 256
# Weights in a block of the types that copies are for.
_BLOCK = 32
# What three copies of four bits leave is below the precision of 16-bit floats.
MAX_COPIES = 3


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a scaled matrix.

    size: its length. indices: one array per copy; entry i is the index of the source's index i.
    """

    size: int
    indices: tuple[NDArray[np.intp], ...]

    @property
    def used_size(self) -> int:
        """The length of the beginning, in whole blocks, that holds all copies."""
        return min(self.size, _aligned(max(int(copy[-1]) for copy in self.indices) + 1))

    @property
    def first_copy(self) -> "Axis":
        """The same axis with the first copy only."""
        return Axis(self.size, self.indices[:1])

    def source_indices(self) -> NDArray[np.intp]:
        """For each index, (size,): the index of the source that it holds, or -1."""
        found = np.full(self.size, -1)
        for copy in self.indices:
            found[copy] = np.arange(len(copy))
        return found


@dataclass(frozen=True, slots=True)
class Layout:
    """The axes of a scaled model. copies: of hidden state, query heads and feed-forward units."""

    copies: int
    hidden: Axis
    heads: Axis
    kv_heads: Axis
    units: Axis
    tokens: Axis


def lay_out(source: Shape, shape: Shape, max_copies: int = MAX_COPIES) -> Layout:
    """Lay the source out in a larger shape, in as many copies as every axis has room for.

    Raises InvalidValueError if the width has no room for what extra tokens need.
    """
    # Extra tokens need one more index of the hidden state, in a block of its own.
    taken = ALIGNMENT if shape.vocabulary > source.vocabulary else 0
    least = _aligned(source.width) + taken
    if taken and shape.width < least:
        raise InvalidValueError(
            f"width {shape.width} leaves no place for extra tokens; ask for {least} or more, or "
            "leave the vocabulary as it is"
        )
    room = min(
        max_copies,
        (shape.width - taken) // _aligned(source.width),
        shape.ffn // _aligned(source.ffn),
        shape.group // source.group,
    )
    ragged = any(size % _BLOCK for size in (source.width, source.head_dim, source.ffn))
    copies = 1 if ragged else max(1, room)
    return Layout(
        copies=copies,
        hidden=_axis(source.width, shape.width, copies),
        heads=_query_heads(source, shape, copies),
        kv_heads=_axis(
            source.kv_heads * source.head_dim, shape.kv_heads * shape.head_dim, copies=1
        ),
        units=_axis(source.ffn, shape.ffn, copies),
        tokens=_axis(source.vocabulary, shape.vocabulary, copies=1),
    )


def _aligned(size: int) -> int:
    """Rounded up to whole blocks."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _axis(length: int, size: int, copies: int) -> Axis:
    return Axis(size, tuple(copy * _aligned(length) + np.arange(length) for copy in range(copies)))


def _query_heads(source: Shape, shape: Shape, copies: int) -> Axis:
    """Query head i reads key-value head i // group, so every copy of a head stays in its group."""
    kv_head, member = np.divmod(np.arange(source.heads), source.group)
    indices = []
    for copy in range(copies):
        head = kv_head * shape.group + copy * source.group + member
        values = head[:, None] * source.head_dim + np.arange(source.head_dim)
        indices.append(values.reshape(-1))
    return Axis(shape.heads * shape.head_dim, tuple(indices))
