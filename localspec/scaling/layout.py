"""Layout: where the numbers of a small model lie in the large one that computes the same.

The hidden state, the query heads and the feed-forward units of the source appear there in several
equal copies. A matrix that reads such an axis is written as a sum, W = W1 + W2 + ..., each part
the rounding of what the parts before it leave, and each read by a copy of its own: W h = W1 h +
W2 h + ... So coarse types, too, hold the source's weights nearly exactly. Whatever lies between
and behind the copies never reaches them.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.errors import InvalidValueError
from localspec.scaling.shape import Shape

# Elements in a block of any quantised type, and in one of the types that copies are for.
ALIGNMENT = 256
_BLOCK = 32
# Three copies of four bits leave nothing that 16-bit floats would see.
MOST_COPIES = 3


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a scaled matrix. places: for each copy, where the source's indices are."""

    size: int
    places: tuple[NDArray[np.intp], ...]

    @property
    def end(self) -> int:
        """From here on there is nothing of the source."""
        return min(self.size, aligned(max(int(place[-1]) for place in self.places) + 1))

    @property
    def first(self) -> "Axis":
        """With the first copy only."""
        return Axis(self.size, self.places[:1])

    def origins(self) -> NDArray[np.intp]:
        """For each index the one of the source that it holds, or -1."""
        found = np.full(self.size, -1)
        for place in self.places:
            found[place] = np.arange(len(place))
        return found


@dataclass(frozen=True, slots=True)
class Layout:
    """The axes of a scaled model: hidden state, query heads, key-value heads, units, tokens."""

    copies: int
    hidden: Axis
    heads: Axis
    kv_heads: Axis
    units: Axis
    tokens: Axis


def aligned(size: int) -> int:
    """Rounded up, so that what follows begins a block."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def lay_out(source: Shape, shape: Shape, most_copies: int = MOST_COPIES) -> Layout:
    """Place the source in the shape, in as many copies as all axes have room for.

    Raises InvalidValueError when extra tokens have no place in the width.
    """
    # They take one more, in a block of its own.
    taken = ALIGNMENT if shape.vocabulary > source.vocabulary else 0
    least = aligned(source.width) + taken
    if taken and shape.width < least:
        raise InvalidValueError(
            f"width {shape.width} leaves no place for extra tokens; ask for {least} or more, or "
            "leave the vocabulary as it is"
        )
    room = min(
        most_copies,
        (shape.width - taken) // aligned(source.width),
        shape.ffn // aligned(source.ffn),
        shape.group // source.group,
    )
    ragged = any(size % _BLOCK for size in (source.width, source.head_dim, source.ffn))
    copies = 1 if ragged else max(1, room)
    return Layout(
        copies=copies,
        hidden=_spans(source.width, shape.width, copies),
        heads=_query_heads(source, shape, copies),
        kv_heads=_spans(
            source.kv_heads * source.head_dim, shape.kv_heads * shape.head_dim, copies=1
        ),
        units=_spans(source.ffn, shape.ffn, copies),
        tokens=_spans(source.vocabulary, shape.vocabulary, copies=1),
    )


def _spans(length: int, size: int, copies: int) -> Axis:
    return Axis(size, tuple(copy * aligned(length) + np.arange(length) for copy in range(copies)))


def _query_heads(source: Shape, shape: Shape, copies: int) -> Axis:
    """Query head i reads key-value head i // group: every copy of a head stays in its group."""
    kv_head, member = np.divmod(np.arange(source.heads), source.group)
    places = []
    for copy in range(copies):
        head = kv_head * shape.group + copy * source.group + member
        values = head[:, None] * source.head_dim + np.arange(source.head_dim)
        places.append(values.reshape(-1))
    return Axis(shape.heads * shape.head_dim, tuple(places))
