"""The bytes of one large matrix, a few rows at a time: rows of the source among fillers."""

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from localspec.scaling.layout import Axis
from localspec.scaling.source import Bytes, Floats, Kind, decode, encode, row_bytes

# Rows made and written at a time, and the rows of a filler, which is used again and again.
CHUNK = 256

Read = Callable[[NDArray[np.intp]], Bytes]


def matrix(read: Read, rows: Axis, filler: Bytes) -> Iterator[Bytes]:
    """The matrix in chunks of rows.

    read: the bytes of some of the source's rows, maybe only their beginning. filler: the other
    rows, and the rest of those.
    """
    origins = rows.origins()
    for start in range(0, rows.size, CHUNK):
        origin = origins[start : start + CHUNK]
        chunk, held = filler[: len(origin)], origin >= 0
        if held.any():
            real = read(origin[held])
            chunk = chunk.copy()
            chunk[held, : real.shape[1]] = real
        yield chunk


def summed(values: Floats, columns: Axis, kind: Kind) -> Bytes:
    """Rows whose parts, one to each copy of the columns, add up to `values` as nearly as can be."""
    written, rest = np.zeros((len(values), columns.end), np.float32), values
    *others, last = columns.places
    for place in others:
        part = decode(encode(rest, kind), kind)
        written[:, place] = part
        rest = rest - part
    written[:, last] = rest
    # What was rounded once is rounded to itself, for every copy has blocks of its own.
    return encode(written, kind)


def repeated(values: Floats, columns: Axis) -> Floats:
    """Rows with `values` in every copy, and zero elsewhere."""
    rows = np.zeros((len(values), columns.size), np.float32)
    for place in columns.places:
        rows[:, place] = values
    return rows


@cache
def random_rows(columns: int, kind: Kind) -> Bytes:
    """Weights that keep what they make as small as what they read."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((CHUNK, columns), np.float32) / np.float32(columns**0.5)
    return encode(values, kind)


@cache
def zero_rows(columns: int, kind: Kind) -> Bytes:
    """Zeros; in the quantised types random numbers whose scale is zero."""
    if kind not in (Kind.Q4_0, Kind.Q8_0):
        return encode(np.zeros((CHUNK, columns), np.float32), kind)
    blocks = random_rows(columns, kind).reshape(-1, row_bytes(32, kind)).copy()
    # A block of either begins with its scale, a 16-bit float.
    blocks[:, :2] = 0
    return blocks.reshape(CHUNK, -1)
