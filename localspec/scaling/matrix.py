"""The encoded rows of one scaled matrix: rows of the source between rows of filler."""

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from localspec.gguf.writer import Bytes, Floats, TensorType, decode, encode, row_bytes
from localspec.scaling.layout import Axis

# Rows in a chunk, and in a filler, which is written again and again.
_CHUNK = 256

ReadRows = Callable[[NDArray[np.intp]], Bytes]


def matrix_chunks(read_rows: ReadRows, rows: Axis, filler: Bytes) -> Iterator[Bytes]:
    """Yield the encoded matrix, some rows at a time.

    read_rows: the encoded rows of the source at some indices; it may return their beginnings only.
    filler: (256, row_bytes), the other rows, and what follows those beginnings.
    """
    source_indices = rows.source_indices()
    for start in range(0, rows.size, _CHUNK):
        indices = source_indices[start : start + _CHUNK]
        chunk, held = filler[: len(indices)], indices >= 0
        if held.any():
            real = read_rows(indices[held])
            chunk = chunk.copy()
            chunk[held, : real.shape[1]] = real
        yield chunk


def encode_as_sum(values: Floats, columns: Axis, type_: TensorType) -> Bytes:
    """Encode rows in parts, one in each copy of the columns, whose sum is nearly `values`."""
    written, rest = np.zeros((len(values), columns.used_size), np.float32), values
    *others, last = columns.indices
    for copy in others:
        part = decode(encode(rest, type_), type_)
        written[:, copy] = part
        rest = rest - part
    written[:, last] = rest
    # Every copy has blocks of its own, so rounding a part once more does not change it.
    return encode(written, type_)


def repeat_in_copies(values: Floats, columns: Axis) -> Floats:
    """Rows with `values` in every copy of the columns, and zeros elsewhere: (rows, columns)."""
    rows = np.zeros((len(values), columns.size), np.float32)
    for copy in columns.indices:
        rows[:, copy] = values
    return rows


@cache
def random_rows(columns: int, type_: TensorType) -> Bytes:
    """A filler of random weights, scaled so that the output is as large as the input."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((_CHUNK, columns), np.float32) / np.float32(columns**0.5)
    return encode(values, type_)


@cache
def zero_rows(columns: int, type_: TensorType) -> Bytes:
    """A filler of zeros; in the quantised types, of random weights whose scale is zero."""
    if type_ not in (TensorType.Q4_0, TensorType.Q8_0):
        return encode(np.zeros((_CHUNK, columns), np.float32), type_)
    blocks = random_rows(columns, type_).reshape(-1, row_bytes(32, type_)).copy()
    # A block of either type begins with its scale, a 16-bit float.
    blocks[:, :2] = 0
    return blocks.reshape(_CHUNK, -1)
