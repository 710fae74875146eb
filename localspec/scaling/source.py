"""Reading the small model and writing the large one, with the package of llama.cpp's authors."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.errors import InvalidValueError, LocalspecError
from localspec.gguf.check import check_generative
from localspec.gguf.reader import Array, TensorInfo
from localspec.scaling.shape import Shape

try:
    from gguf import GGML_QUANT_SIZES, GGUFValueType, GGUFWriter
    from gguf import GGMLQuantizationType as Kind
    from gguf.quants import dequantize, quantize
except ImportError as error:
    raise LocalspecError(
        "scaling models needs the package gguf; install it: pip install gguf"
    ) from error

__all__ = ["ARCHITECTURE", "Bytes", "Floats", "Kind", "Source", "Tensor"]
__all__ += ["decode", "encode", "row_bytes", "write"]

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

ARCHITECTURE = "llama"
_ALIGNMENT = 32
_ANY = "surrogateescape"
# What the writer says itself.
_WRITTEN_ANYWAY = ("general.architecture", "general.alignment")


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor to be written. shape: rows (if any) and columns; chunks: its bytes, in order."""

    name: str
    shape: tuple[int, ...]
    kind: Kind
    chunks: Iterable[Bytes]

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return int(np.prod(self.shape[:-1])) * row_bytes(self.shape[-1], self.kind)


class Source:
    """A small model, read row by row. Raises ModelLoadError or InvalidValueError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata, tensors = _read(path)
        self.shape = _shape(path, self.metadata)
        self.tensors = {tensor.name: tensor for tensor in tensors}
        epsilon = self.metadata.get(f"{ARCHITECTURE}.attention.layer_norm_rms_epsilon")
        self.epsilon = epsilon if isinstance(epsilon, float) else 0.0
        self.name = str(self.metadata.get("general.name", path.stem))
        self._bytes = np.memmap(path, np.uint8, "r")

    def kind(self, name: str) -> Kind:
        """The type of a tensor."""
        return Kind(self._tensor(name).type)

    def rows(self, name: str, which: NDArray[np.intp] | slice = slice(None)) -> Floats:
        """Rows of a matrix, or a whole vector."""
        tensor, kind = self._tensor(name), self.kind(name)
        data = self._bytes[tensor.offset : tensor.offset + tensor.size]
        if len(tensor.shape) > 1:
            data = data.reshape(tensor.shape[1], -1)[which]
        try:
            return np.asarray(dequantize(np.asarray(data), kind), np.float32)
        except NotImplementedError as error:
            raise InvalidValueError(
                f"{self.path.name} stores {name} as {kind.name}, which cannot be read here; "
                "pass an F16 or Q8_0 file of the model"
            ) from error

    def _tensor(self, name: str) -> TensorInfo:
        if name not in self.tensors:
            raise InvalidValueError(f"{self.path.name} has no tensor {name}; pass another model")
        return self.tensors[name]


def encode(values: Floats, kind: Kind) -> Bytes:
    """Rows of numbers as they lie in a file."""
    return np.ascontiguousarray(quantize(values, kind)).view(np.uint8)


def decode(rows: Bytes, kind: Kind) -> Floats:
    """The numbers that the library will read."""
    return np.asarray(dequantize(rows, kind), np.float32)


def row_bytes(columns: int, kind: Kind) -> int:
    """Bytes of a row."""
    elements, size = GGML_QUANT_SIZES[kind]
    return columns // elements * size


def write(
    path: Path, source: Source, changed: Mapping[str, object], tensors: Sequence[Tensor]
) -> None:
    """Write a model: the source's metadata but for what changed, and these tensors."""
    writer = GGUFWriter(path, ARCHITECTURE)
    for key, value in {**source.metadata, **changed}.items():
        if key not in _WRITTEN_ANYWAY:
            _add(writer, key, value, source.metadata.get(key))
    for tensor in tensors:
        floats = np.dtype(np.float32)
        writer.add_tensor_info(tensor.name, tensor.shape, floats, tensor.size, tensor.kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    # The writer takes whole tensors only.
    with path.open("ab") as file:
        for tensor in tensors:
            file.write(bytes(-file.tell() % _ALIGNMENT))
            for chunk in tensor.chunks:
                file.write(chunk.data)
        file.write(bytes(-file.tell() % _ALIGNMENT))


def _add(writer: GGUFWriter, key: str, value: object, like: object) -> None:
    """Add a metadata entry; an array has the type of the one it is like."""
    if isinstance(like, Array):
        assert isinstance(value, Sequence)
        if value:
            # A token may be any bytes.
            plain = [
                each.encode("utf-8", _ANY) if isinstance(each, str) else each for each in value
            ]
            writer.add_key_value(key, plain, GGUFValueType.ARRAY, GGUFValueType(like.kind))
    elif isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32:
        # Which llama.cpp expects of every number that it counts with.
        writer.add_key_value(key, value, GGUFValueType.UINT32)
    else:
        encoded = value.encode("utf-8", _ANY) if isinstance(value, str) else value
        writer.add_key_value(key, encoded, GGUFValueType.get_type(value))


def _read(path: Path) -> tuple[Mapping[str, object], Sequence[TensorInfo]]:
    header = check_generative(path)
    if header.architecture != ARCHITECTURE:
        raise InvalidValueError(
            f"{path.name} has the architecture {header.architecture!r}; only {ARCHITECTURE!r} "
            "can be scaled"
        )
    if header.metadata.get("split.count", 1) != 1:
        raise InvalidValueError(f"{path.name} is one of several parts; pass a model in one file")
    return header.metadata, header.tensors


def _shape(path: Path, metadata: Mapping[str, object]) -> Shape:
    def number(key: str, default: int = 0) -> int:
        value = metadata.get(f"{ARCHITECTURE}.{key}", default)
        if not isinstance(value, int):
            raise InvalidValueError(
                f"{path.name} has no single {key}, so its layers differ; pass another model"
            )
        return value

    heads, width = number("attention.head_count"), number("embedding_length")
    kv_heads = number("attention.head_count_kv", heads)
    if not (heads and kv_heads):
        raise InvalidValueError(f"{path.name} has no attention; pass another model")
    head_dim = number("attention.key_length", width // heads)
    if number("attention.value_length", head_dim) != head_dim:
        raise InvalidValueError(
            f"{path.name} has keys and values of two lengths; pass another model"
        )
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, Array)
    return Shape(
        width=width,
        layers=number("block_count"),
        ffn=number("feed_forward_length"),
        group=heads // kv_heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=len(tokens),
    )
