"""Source model: the small llama-architecture model, or head of one, that is scaled."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.errors import InvalidValueError
from localspec.gguf import block_heads
from localspec.gguf.check import check_drafter
from localspec.gguf.heads import EAGLE3
from localspec.gguf.reader import Array, Header, TensorInfo
from localspec.gguf.weights import Weights
from localspec.gguf.writer import Floats, TensorData, TensorType
from localspec.scaling.shape import Shape

ARCHITECTURE = "llama"
# The heads that can be scaled with their target.
HEADS = (EAGLE3, block_heads.ARCHITECTURE)


class SourceModel:
    """The metadata, the sizes and the weights of a small model, read row by row.

    architectures: those that are taken. Raises ModelLoadError for a file that is no model, and
    InvalidValueError for a model that cannot be scaled.
    """

    def __init__(self, path: Path, architectures: Sequence[str] = (ARCHITECTURE,)) -> None:
        header = _scalable_header(path, architectures)
        self.path = path
        self.architecture = header.architecture
        self.metadata = header.metadata
        self.shape = _shape(path, header)
        self.tensors = {tensor.name: tensor for tensor in header.tensors}
        epsilon = header.own("attention.layer_norm_rms_epsilon")
        self.epsilon = epsilon if isinstance(epsilon, float) else 0.0
        self.name = str(self.metadata.get("general.name", path.stem))
        self._weights = Weights(path)

    def tensor_type(self, name: str) -> TensorType:
        """The type of a tensor's weights. Raises InvalidValueError for an unknown tensor."""
        return TensorType(self._tensor(name).type)

    def rows(self, name: str, which: NDArray[np.intp] | slice = slice(None)) -> Floats:
        """The rows `which` of a matrix, (rows, columns), or a whole vector, (columns,).

        Raises InvalidValueError for a tensor that it does not have, or whose type cannot be read.
        """
        return self._weights.rows(self._tensor(name), which)

    def require_all_in(self, scaled: Sequence[TensorData], way_out: str) -> None:
        """Raise InvalidValueError for a tensor without a scaled one. way_out: what to do then."""
        unknown = self.tensors.keys() - {tensor.name for tensor in scaled}
        if unknown:
            raise InvalidValueError(
                f"{self.path.name} has a tensor {min(unknown)}, which cannot be scaled; {way_out}"
            )

    def extended_vocabulary(self, extra: Mapping[str, Sequence[object]]) -> dict[str, object]:
        """The token lists of the metadata with `extra` entries at their ends, as metadata.

        extra: by the name of a list, such as `tokens`. Lists the model does not have stay out.
        """
        lists = {f"tokenizer.ggml.{name}": entries for name, entries in extra.items()}
        held = {key: self.metadata[key] for key in lists if key in self.metadata}
        return {
            key: [*entries, *lists[key]]
            for key, entries in held.items()
            if isinstance(entries, Array)
        }

    def _tensor(self, name: str) -> TensorInfo:
        if name not in self.tensors:
            raise InvalidValueError(f"{self.path.name} has no tensor {name}; pass another model")
        return self.tensors[name]


def _scalable_header(path: Path, architectures: Sequence[str]) -> Header:
    header = check_drafter(path)
    if header.architecture not in architectures:
        raise InvalidValueError(
            f"{path.name} has the architecture {header.architecture!r}; only "
            f"{' and '.join(map(repr, architectures))} can be scaled"
        )
    if header.metadata.get("split.count", 1) != 1:
        raise InvalidValueError(f"{path.name} is one of several parts; pass a model in one file")
    return header


def _shape(path: Path, header: Header) -> Shape:
    def number(key: str, default: int = 0) -> int:
        value = default if header.own(key) is None else header.own(key)
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
    tokens = header.metadata["tokenizer.ggml.tokens"]
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
