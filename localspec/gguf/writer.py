"""GGUF writer: a file from metadata, and from tensors whose bytes are made while it is written.

The package gguf of llama.cpp's authors writes the header. Its own way to write tensors takes each
as a whole; here a tensor comes in chunks, so a large model needs little memory.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGUFValueType, GGUFWriter
from gguf import GGMLQuantizationType as TensorType
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray

from localspec.gguf.reader import Array

__all__ = ["Bytes", "Floats", "TensorData", "TensorType"]
__all__ += ["decode", "encode", "row_bytes", "write_gguf"]

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

_ALIGNMENT = 32
_MOST_FLOAT = float(np.finfo(np.float32).max)
# GGUFWriter adds these itself.
_ADDED_BY_WRITER = ("general.architecture", "general.alignment")


@dataclass(frozen=True, slots=True)
class TensorData:
    """A tensor to write.

    shape: (rows, columns), or (columns,) for a vector. chunks: the encoded rows, in order.
    """

    name: str
    shape: tuple[int, ...]
    type: TensorType
    chunks: Iterable[Bytes]

    @classmethod
    def of(cls, name: str, values: Floats, type_: TensorType) -> "TensorData":
        """A tensor of these weights, (rows, columns) or (columns,)."""
        return cls(name, values.shape, type_, [encode(values, type_)])

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return int(np.prod(self.shape[:-1])) * row_bytes(self.shape[-1], self.type)


def row_bytes(columns: int, type_: TensorType) -> int:
    """Bytes of one row of `columns` weights."""
    block_size, block_bytes = GGML_QUANT_SIZES[type_]
    return columns // block_size * block_bytes


def encode(values: Floats, type_: TensorType) -> Bytes:
    """The bytes of rows of weights, as a file stores them: (rows, row_bytes)."""
    # Blocks of numbers that are nearly zero have no scale, and need none.
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(quantize(values, type_)).view(np.uint8)


def decode(rows: Bytes, type_: TensorType) -> Floats:
    """The weights that llama.cpp reads from encoded rows: (rows, columns).

    Raises NotImplementedError for a type that the package gguf cannot decode.
    """
    return np.asarray(dequantize(rows, type_), np.float32)


def write_gguf(
    path: Path,
    architecture: str,
    metadata: Mapping[str, object],
    tensors: Sequence[TensorData],
) -> None:
    """Write a model file.

    metadata: numbers, texts, and arrays. An `Array` that was read from a file keeps the type of its
    elements; a list gets the type of its first element. Empty arrays are left out.
    """
    writer = GGUFWriter(path, architecture)
    for key, value in metadata.items():
        if key not in _ADDED_BY_WRITER:
            _add_metadata(writer, key, value)
    for tensor in tensors:
        floats = np.dtype(np.float32)
        writer.add_tensor_info(tensor.name, tensor.shape, floats, tensor.size, tensor.type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("ab") as file:
        for tensor in tensors:
            file.write(bytes(-file.tell() % _ALIGNMENT))
            for chunk in tensor.chunks:
                file.write(chunk.data)
        file.write(bytes(-file.tell() % _ALIGNMENT))


def _add_metadata(writer: GGUFWriter, key: str, value: object) -> None:
    if isinstance(value, (Array, list)):
        if value:
            element_type = GGUFValueType(value.kind) if isinstance(value, Array) else None
            elements = [_encoded(element) for element in value]
            writer.add_key_value(key, elements, GGUFValueType.ARRAY, element_type)
    else:
        writer.add_key_value(key, _encoded(value), _type_of(value))


def _type_of(value: object) -> GGUFValueType:
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            return GGUFValueType.INT32 if value >= -(1 << 31) else GGUFValueType.INT64
        # llama.cpp reads every count as 32 bits.
        return GGUFValueType.UINT32 if value < 1 << 32 else GGUFValueType.UINT64
    if isinstance(value, float) and _MOST_FLOAT < abs(value) < inf:
        return GGUFValueType.FLOAT64
    return GGUFValueType.get_type(value)


def _encoded(value: object) -> object:
    """Texts as bytes: a token may be bytes that are not UTF-8, which were read as surrogates."""
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
