"""GGUF of trained heads, which draft for one target and use its embedding and output matrices."""

from collections.abc import Mapping
from pathlib import Path

from localspec.conversion.published import file_type, tensor_of
from localspec.gguf.writer import TensorType, write_gguf
from localspec.training.sizes import Sizes, Weights
from localspec.training.tensor_layouts import MEDUSA_BLOCKS, MEDUSA_HEADS, MEDUSA_NAMES


def write_weights(
    path: Path,
    architecture: str,
    metadata: Mapping[str, object],
    tensors: Weights,
    type_: TensorType,
) -> None:
    """Write a model or head. tensors: by their names without `.weight`. type_: of its matrices."""
    write_gguf(
        path,
        architecture,
        {**metadata, "general.file_type": file_type(type_)},
        [tensor_of(f"{name}.weight", weight, type_) for name, weight in tensors.items()],
    )


def write_medusa(
    sizes: Sizes, weights: Weights, path: Path, type_: TensorType, about: Mapping[str, object]
) -> None:
    """Write Medusa heads with matrices of a type. about: metadata."""
    metadata: dict[str, object] = {
        "medusa.head_count": MEDUSA_HEADS,
        "medusa.block_count": MEDUSA_BLOCKS,
        "medusa.embedding_length": sizes.width,
        "medusa.vocab_size": sizes.vocabulary,
    }
    tensors = [tensor_of(name, weights[own], type_) for own, name in MEDUSA_NAMES.items()]
    write_gguf(path, "medusa", {**metadata, **about}, tensors)
