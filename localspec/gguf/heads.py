"""Draft heads: what the header of a head says about the target that it belongs to."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import DrafterMismatchError, ModelLoadError
from localspec.gguf import assistant, block_heads
from localspec.gguf.assistant import ASSISTANT
from localspec.gguf.block_heads import DFLASH2, Block, block_kind, block_of, rotates_sections
from localspec.gguf.matrix_heads import KINDS as MATRIX_KINDS
from localspec.gguf.reader import Array, Header, TensorInfo, display_name
from localspec.utils.option_names import options

# The kinds of heads, in llama.cpp's words; those with a block are in `block_heads`.
EAGLE3, MTP = "eagle3", "mtp"
# Those that llama.cpp loads, and gives contexts to, as heads of multi-token prediction.
MTP_KINDS = (MTP, ASSISTANT)
_ID = struct.Struct("<q")
# The number of heads of multi-token prediction, and what the names of their tensors have.
_COUNT, _MTP_TENSOR = "nextn_predict_layers", ".nextn."


@dataclass(frozen=True, slots=True)
class Head:
    """A head that reads hidden states of its target.

    kind: as of `kind_of`. layers: the layers of the target whose hidden rows it reads, side by side
    in this order; the number of layers itself means the rows that leave the last. target_width: of
    one such row. width: of the head's own rows. own: the layers in the head's own file that are not
    heads, which is the number of the head's own rows. count: of heads in the file.
    """

    kind: str
    layers: tuple[int, ...]
    target_width: int
    width: int
    block: Block | None = None
    own: int = 1
    count: int = 1


def kind_of(header: Header) -> str | None:
    """The kind of the head in a file; None for a model, which may have heads inside."""
    if header.architecture == block_heads.ARCHITECTURE:
        return block_kind(header)
    if header.architecture == EAGLE3:
        return EAGLE3
    if header.architecture == assistant.ARCHITECTURE:
        return ASSISTANT
    if _is_mtp_alone(header):
        return MTP
    return MATRIX_KINDS.get(header.architecture)


def has_mtp(header: Header, tensors: Iterable[TensorInfo]) -> bool:
    """Whether a model has heads of multi-token prediction. tensors: of all its files.

    Some files name heads that they do not have.
    """
    return bool(header.number(_COUNT)) and any(_MTP_TENSOR in each.name for each in tensors)


def head_of(path: Path, header: Header, target: Header | None = None) -> Head:
    """Read the head in a file. Raises ModelLoadError for a broken one.

    target: its last layer is what an assistant reads; without one, the head has no layers.
    """
    name = display_name(path)
    if header.architecture == assistant.ARCHITECTURE:
        width = assistant.width_of(path, header)
        last = (layers_of(target),) if target else ()
        return Head(ASSISTANT, last, width, width, own=0)
    if header.architecture not in (EAGLE3, block_heads.ARCHITECTURE):
        return _mtp_of(header)
    layers = header.own("target_layers")
    if not isinstance(layers, Array) or not all(type(each) is int for each in layers) or not layers:
        raise ModelLoadError(
            f"{name} does not say which layers of its target it reads "
            f"({header.architecture}.target_layers); download a current conversion"
        )
    _require_known_tokens(path, header)
    _require_all_embeddings(path, header)
    width = header.number("embedding_length") or 0
    if header.architecture == block_heads.ARCHITECTURE:
        # The target's rows are as wide as the head's own.
        block = block_of(path, header, vocabulary_size(header))
        return Head(block_kind(header), tuple(layers), width, width, block)
    return Head(EAGLE3, tuple(layers), header.number("target_hidden_size") or 0, width)


def require_fitting(path: Path, header: Header, target_path: Path, target: Header) -> None:
    """Raise DrafterMismatchError for a head that reads what its target does not have."""
    head = head_of(path, header, target)
    name, target_name = display_name(path.name), display_name(target_path.name)
    n_layer, width = layers_of(target), target.number("embedding_length") or 0
    if head.kind == MTP and (header.architecture, *head.layers) != (target.architecture, n_layer):
        raise DrafterMismatchError(
            f"{name} is a head of {header.architecture} models of {head.layers[0]} layers, and "
            f"{target_name} is {target.architecture} with {n_layer}; use the head that was made "
            f"for this model, or {options(draft='suffix')}"
        )
    for layer in head.layers:
        if not 0 <= layer <= n_layer:
            raise DrafterMismatchError(
                f"{name} reads hidden states of layer {layer}, and {target_name} has {n_layer} "
                "layers; use the head that was made for this model, or "
                f"{options(draft='suffix')}"
            )
    if head.kind == ASSISTANT:
        assistant.require_shared_layers(path, header, target_path, target)
    if head.target_width != width:
        raise DrafterMismatchError(
            f"{name} reads hidden states of {head.target_width} numbers, and those of "
            f"{target_name} have {width}; use the head that was made for this model, or "
            f"{options(draft='suffix')}"
        )
    if head.kind == DFLASH2 and rotates_sections(target) and not rotates_sections(header):
        raise DrafterMismatchError(
            f"{name} lacks the rope sections that {target_name} has "
            f"({header.architecture}.rope.dimension_sections); download a current conversion"
        )
    sizes = vocabulary_size(header), vocabulary_size(target)
    if not has_own_output(header) and sizes[0] != sizes[1]:
        raise DrafterMismatchError(
            f"{name} uses the output matrix of its target, and the vocabularies have {sizes[0]} "
            f"and {sizes[1]} tokens; use the head that was made for this model, or "
            f"{options(draft='suffix')}"
        )


def layers_of(header: Header) -> int:
    """The number of layers of a model, without the heads inside."""
    return (header.number("block_count") or 0) - (header.number(_COUNT) or 0)


def has_own_output(header: Header) -> bool:
    """Whether a head has an output matrix; if not, it uses its target's.

    The embedding of an assistant, and of a head that drafts in blocks, is its output matrix too.
    """
    names = ["output.weight"]
    if header.architecture in (block_heads.ARCHITECTURE, assistant.ARCHITECTURE):
        names.append("token_embd.weight")
    return any(header.tensor(name) for name in names)


def vocabulary_size(header: Header) -> int:
    """The number of tokens in a vocabulary; 0 without one."""
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    return len(tokens) if isinstance(tokens, Sequence) else 0


def _is_mtp_alone(header: Header) -> bool:
    """Whether a file has the layers of heads, and not those of their target."""
    if not header.number(_COUNT) or (header.metadata.get("split.count") or 1) != 1:
        return False
    trunk = any(tensor.name.startswith("blk.0.") for tensor in header.tensors)
    return not trunk and has_mtp(header, header.tensors)


def _mtp_of(header: Header) -> Head:
    """The heads of multi-token prediction in a file."""
    layers, width = layers_of(header), header.number("embedding_length") or 0
    return Head(MTP, (layers,), width, width, own=layers, count=header.number(_COUNT) or 0)


def _require_all_embeddings(path: Path, header: Header) -> None:
    """Raise ModelLoadError where the head's own embedding lacks tokens of its vocabulary."""
    table, count = header.tensor("token_embd.weight"), vocabulary_size(header)
    if table and table.shape[-1] < count:
        raise ModelLoadError(
            f"{display_name(path)} has embeddings of {table.shape[-1]} tokens, and its vocabulary "
            f"has {count}; download a current conversion"
        )


def _require_known_tokens(path: Path, header: Header) -> None:
    """Raise ModelLoadError where d2t, the head's own vocabulary, names tokens that do not exist.

    The library does not check them, and writes the logits of such tokens outside its memory.
    """
    table, count = header.tensor("d2t"), vocabulary_size(header)
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
