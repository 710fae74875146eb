"""Draft heads: what the header of a head says about the target that it belongs to."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import DrafterMismatchError, ModelLoadError
from localspec.gguf.reader import Array, Header, TensorInfo, display_name

# The architecture of the heads that can draft here.
EAGLE3 = "eagle3"
_ID = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class Head:
    """A head that reads hidden states of its target.

    layers: the layers of the target whose hidden rows it reads, side by side in this order; the
    number of layers itself means the rows that leave the last. target_width: of one such row.
    width: of the head's own rows.
    """

    layers: tuple[int, ...]
    target_width: int
    width: int


def head_of(path: Path, header: Header) -> Head:
    """Read the head in a file of architecture EAGLE3. Raises ModelLoadError for a broken one."""
    name = display_name(path)
    layers = header.own("target_layers")
    if not isinstance(layers, Array) or not all(type(each) is int for each in layers):
        raise ModelLoadError(
            f"{name} does not say which layers of its target it reads "
            f"({header.architecture}.target_layers); download a current conversion"
        )
    _require_known_tokens(path, header)
    _require_all_embeddings(path, header)
    target_width, width = (
        header.number(key) or 0 for key in ("target_hidden_size", "embedding_length")
    )
    return Head(tuple(layers), target_width, width)


def require_fitting(path: Path, header: Header, target_path: Path, target: Header) -> None:
    """Raise DrafterMismatchError for a head that reads what its target does not have."""
    head = head_of(path, header)
    name, target_name = display_name(path.name), display_name(target_path.name)
    n_layer, width = target.number("block_count") or 0, target.number("embedding_length") or 0
    for layer in head.layers:
        if not 0 <= layer <= n_layer:
            raise DrafterMismatchError(
                f"{name} reads hidden states of layer {layer}, and {target_name} has {n_layer} "
                "layers; use the head that was made for this model, or --draft suffix"
            )
    if head.target_width != width:
        raise DrafterMismatchError(
            f"{name} reads hidden states of {head.target_width} numbers, and those of "
            f"{target_name} have {width}; use the head that was made for this model, or "
            "--draft suffix"
        )
    sizes = vocabulary_size(header), vocabulary_size(target)
    if not has_own_output(header) and sizes[0] != sizes[1]:
        raise DrafterMismatchError(
            f"{name} uses the output matrix of its target, and the vocabularies have {sizes[0]} "
            f"and {sizes[1]} tokens; use the head that was made for this model, or --draft suffix"
        )


def has_own_output(header: Header) -> bool:
    """Whether a head has an output matrix; if not, it uses its target's."""
    return _tensor(header, "output.weight") is not None


def vocabulary_size(header: Header) -> int:
    """The number of tokens in a vocabulary; 0 without one."""
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    return len(tokens) if isinstance(tokens, Sequence) else 0


def _tensor(header: Header, name: str) -> TensorInfo | None:
    return next((tensor for tensor in header.tensors if tensor.name == name), None)


def _require_all_embeddings(path: Path, header: Header) -> None:
    """Raise ModelLoadError where the head's own embedding lacks tokens of its vocabulary."""
    table, count = _tensor(header, "token_embd.weight"), vocabulary_size(header)
    if table and table.shape[-1] < count:
        raise ModelLoadError(
            f"{display_name(path)} has embeddings of {table.shape[-1]} tokens, and its vocabulary "
            f"has {count}; download a current conversion"
        )


def _require_known_tokens(path: Path, header: Header) -> None:
    """Raise ModelLoadError where d2t, the head's own vocabulary, names tokens that do not exist.

    The library does not check them, and writes the logits of such tokens outside its memory.
    """
    table, count = _tensor(header, "d2t"), vocabulary_size(header)
    if table is None:
        return
    with path.open("rb") as file:
        file.seek(table.offset)
        data = file.read(table.size)
    ids = [token for (token,) in _ID.iter_unpack(data[: len(data) // _ID.size * _ID.size])]
    wrong = next((token for token in ids if not 0 <= token < count), None)
    if wrong is not None or not ids:
        raise ModelLoadError(
            f"{display_name(path)} maps its tokens to {'none' if wrong is None else wrong}, and "
            f"the vocabulary has {count}; download a current conversion"
        )
