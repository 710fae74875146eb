"""Reads the header of a GGUF file: its metadata and its table of tensors, not the weights.

On a malformed file llama.cpp can end the whole process. Every length, count, type and offset is
therefore checked against the file here first. Layout: GGUF versions 2 and 3, as in
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import math
import mmap
import os
import stat
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from localspec.errors import ModelLoadError, ModelNotFoundError
from localspec.gguf.cursor import Array, Cursor
from localspec.gguf.files import download_again
from localspec.gguf.types import FLOAT32, SCALARS, TENSOR_TYPES, UINT16, UINT32, UINT64
from localspec.utils.format import printable

__all__ = ["Array", "Header", "TensorInfo", "display_name", "read_header"]

_MAX_KEY_BYTES = (1 << 16) - 1
_MAX_TENSOR_NAME_BYTES = 63

_U32, _U64 = SCALARS[UINT32], SCALARS[UINT64]

# llama.cpp does not check the types of these keys, and aborts on any other type.
_KEY_TYPES = {
    "general.alignment": UINT32,
    "split.no": UINT16,
    "split.count": UINT16,
    "adapter.lora.alpha": FLOAT32,
}

# Files that users pass by mistake, by their first four bytes.
LOOKALIKES = {
    b"vers": "a Git LFS pointer: fetch the model itself with `git lfs pull`",
    b"<!DO": "a web page: download the file itself, not the page about it",
    b"<htm": "a web page: download the file itself, not the page about it",
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a file.

    shape: the fastest-changing dimension first. type: a key of TENSOR_TYPES. offset, size: bytes,
    the offset from the start of the file.
    """

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a GGUF file. version: of the format, 2 or 3."""

    version: int
    metadata: Mapping[str, object]
    tensors: tuple[TensorInfo, ...]

    @property
    def architecture(self) -> str:
        """The architecture, such as "llama"; empty where the file does not name it."""
        value = self.metadata.get("general.architecture")
        return value if isinstance(value, str) else ""

    @property
    def context_length(self) -> int | None:
        """Tokens of the longest text that the model was trained for; None where unknown."""
        return self.number("context_length")

    def without_vocabulary(self) -> "Header":
        """Return the header without its vocabulary, which takes megabytes."""
        kept = {k: v for k, v in self.metadata.items() if not k.startswith("tokenizer.")}
        return replace(self, metadata=kept)

    def own(self, key: str) -> object:
        """Return the value of a key of the architecture: block_count for llama.block_count."""
        return self.metadata.get(f"{self.architecture}.{key}")

    def number(self, key: str) -> int | None:
        """Return the value of a key of the architecture where it is one whole number, else None."""
        value = self.own(key)
        return value if isinstance(value, int) else None

    def largest(self, key: str, default: int = 0) -> int:
        """Return a number of the architecture; where there is one per layer, the largest."""
        value = self.own(key)
        numbers = value if isinstance(value, Array) else (value,)
        return max((each for each in numbers if isinstance(each, int)), default=default)

    def tensor(self, name: str) -> TensorInfo | None:
        """Return the tensor of this name; None without one."""
        return next((tensor for tensor in self.tensors if tensor.name == name), None)


def display_name(path: str | os.PathLike[str]) -> str:
    """Return a path for a one-line message, without unprintable characters."""
    return printable(os.fspath(path))


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read and check the header of the GGUF file at `path`.

    Raises ModelNotFoundError, or ModelLoadError for everything that is not a sound GGUF file.
    """
    name = display_name(path)
    with _map(path, name) as view:
        cursor = Cursor(view, name, download_again(path))
        version = _version(cursor)
        tensor_count = cursor.count("tensors", least_bytes=24)
        key_count = cursor.count("metadata entries", least_bytes=13)
        metadata = _metadata(cursor, key_count)
        entries = [_tensor_entry(cursor, index) for index in range(tensor_count)]
        tensors = _place_tensors(cursor, entries, metadata.get("general.alignment", 32))
        return Header(version, MappingProxyType(metadata), tensors)


def _map(path: str | os.PathLike[str], name: str) -> mmap.mmap:
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise ModelLoadError(f"{name} is a directory; name the .gguf file inside it")
        if not stat.S_ISREG(status.st_mode):
            raise ModelLoadError(f"{name} is not a regular file; pass a .gguf file on disk")
        if not status.st_size:
            raise ModelLoadError(f"{name} is empty; {download_again(path)}")
        with open(path, "rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ModelNotFoundError(f"there is no model file {name}; check the path") from error
    except (OSError, ValueError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelLoadError(f"{name} cannot be read: {reason}; check its permissions") from error


def _version(cursor: Cursor) -> int:
    first = cursor.view[:4]
    if first != b"GGUF":
        hint = LOOKALIKES.get(first, "pass a .gguf file")
        raise ModelLoadError(f"{cursor.name} is not a GGUF file, it begins with {first!r}; {hint}")
    cursor.take(4, "the magic")
    version: int = cursor.scalar(_U32, "the version")
    if version and not version & 0xFFFF:
        raise ModelLoadError(
            f"{cursor.name} is a big-endian GGUF file; download the little-endian one"
        )
    if version not in (2, 3):
        raise ModelLoadError(
            f"{cursor.name} has GGUF version {version}, not 2 or 3; download a current conversion"
        )
    return version


def _metadata(cursor: Cursor, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for index in range(count):
        key = cursor.label(f"metadata key {index}", _MAX_KEY_BYTES)
        if key in metadata:
            raise cursor.refuse(f"metadata key {key[:64]!r} occurs twice")
        what = f"metadata key {key[:64]!r}"
        kind = cursor.scalar(_U32, what)
        if kind != _KEY_TYPES.get(key, kind):
            raise cursor.refuse(f"{what} has type {kind}, not {_KEY_TYPES[key]}")
        metadata[key] = cursor.value(kind, what)
    return metadata


def _tensor_entry(cursor: Cursor, index: int) -> TensorInfo:
    """Read one line of the table; its offset counts from the start of the data."""
    name = cursor.label(f"the name of tensor {index}", _MAX_TENSOR_NAME_BYTES)
    what = f"tensor {name!r}"
    dimensions = cursor.scalar(_U32, what)
    if dimensions > 4:
        raise cursor.refuse(f"{what} has {dimensions} dimensions, not 0 to 4")
    shape = struct.unpack_from(f"<{dimensions}Q", cursor.view, cursor.take(8 * dimensions, what))
    if not 0 < math.prod(shape) < 1 << 63:
        raise cursor.refuse(f"{what} has the impossible shape {shape}")
    kind = cursor.scalar(_U32, what)
    if kind not in TENSOR_TYPES:
        raise ModelLoadError(
            f"{cursor.name}: {what} has the unknown type {kind}; pass another quantization"
        )
    _, elements, size = TENSOR_TYPES[kind]
    row = shape[0] if shape else 1
    if row % elements:
        raise cursor.refuse(f"{what} has rows of {row}, not a multiple of {elements}")
    return TensorInfo(
        name, shape, kind, cursor.scalar(_U64, what), math.prod(shape) // elements * size
    )


def _place_tensors(
    cursor: Cursor, entries: Sequence[TensorInfo], alignment: int
) -> tuple[TensorInfo, ...]:
    if alignment < 1 or alignment & (alignment - 1):
        raise cursor.refuse(f"its alignment {alignment} is not a power of two")
    start = needed = -(-cursor.position // alignment) * alignment
    placed: dict[str, TensorInfo] = {}
    for entry in entries:
        if entry.name in placed:
            raise cursor.refuse(f"tensor {entry.name!r} occurs twice")
        # llama.cpp wants the tensors back to back, each begun on the alignment.
        offset = -(-needed // alignment) * alignment
        if start + entry.offset != offset:
            raise cursor.refuse(
                f"tensor {entry.name!r} is at byte {start + entry.offset}, not at {offset}"
            )
        placed[entry.name] = TensorInfo(entry.name, entry.shape, entry.type, offset, entry.size)
        needed = offset + entry.size
    if placed and needed > len(cursor.view):
        raise ModelLoadError(
            f"{cursor.name} is truncated: its tensors need {needed} bytes and the file has "
            f"{len(cursor.view)}; {cursor.again}"
        )
    return tuple(placed.values())
