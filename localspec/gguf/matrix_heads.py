"""Matrix heads: Medusa heads and MLP speculators, and what their files must have.

llama.cpp does not know these architectures; localspec multiplies their matrices itself. The layout
is described in docs/heads.md. Head k drafts the k-th token; a tensor that it lacks is that of the
head before, except for the blocks of Medusa heads, and an output matrix that no head has is the
target's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import ModelLoadError
from localspec.gguf.reader import Header, TensorInfo, display_name
from localspec.gguf.types import TENSOR_TYPES

MEDUSA, MLP = "medusa", "mlp"
# By general.architecture.
KINDS = {"medusa": MEDUSA, "mlp-speculator": MLP}
# Tensors of other types are not read.
TYPES = ("F32", "F16", "BF16", "Q8_0")
# Where matrices must begin, in bytes; this is the default of the format.
ALIGNMENT = 32
MOST_HEADS, MOST_BLOCKS = 62, 16
_MOST = 1 << 24
_REMEDY = "convert it again with localspec convert"


@dataclass(frozen=True, slots=True)
class MatrixHead:
    """What the header of such heads says.

    kind: MEDUSA or MLP. heads: their number, the most tokens of a draft. width: of the target's
    rows. inner: of the heads' own rows; Medusa's are as wide as the target's. n_vocab: the tokens
    that they know. blocks: residual blocks of each Medusa head. scale_input: whether an MLP
    speculator norms the target's row first. has_output: whether the file has an output matrix;
    else the target's is used.
    """

    kind: str
    heads: int
    width: int
    inner: int
    n_vocab: int
    blocks: int = 0
    scale_input: bool = False
    has_output: bool = True


def matrix_head_of(path: Path, header: Header) -> MatrixHead:
    """Read the heads in a file. Raises ModelLoadError, in one line, for a broken one."""
    kind = KINDS[header.architecture]
    width = _number(path, header, "embedding_length", 1, _MOST)
    heads = _number(path, header, "head_count", 1, MOST_HEADS)
    n_vocab = _number(path, header, "vocab_size", 1, _MOST)
    blocks, inner, scale_input = 0, width, False
    if kind == MEDUSA:
        blocks = _number(path, header, "block_count", 0, MOST_BLOCKS)
    else:
        inner = _number(path, header, "inner_length", 1, _MOST)
        scale_input = bool(header.own("scale_input"))
    has_output = any(tensor.name.endswith("output.weight") for tensor in header.tensors)
    head = MatrixHead(kind, heads, width, inner, n_vocab, blocks, scale_input, has_output)
    if not has_output and inner != width:
        raise ModelLoadError(
            f"{display_name(path)} has no output matrix, and its rows of {inner} numbers do not "
            f"fit its target's, which takes {width}; {_REMEDY}"
        )
    for name, shape in _needed(head):
        _require_sound(path, tensor_of(path, header, name), shape)
    return head


def tensor_of(path: Path, header: Header, name: str) -> TensorInfo:
    """Return the tensor `head.K.PART`, or that of the nearest head before that has it.

    Raises ModelLoadError where there is none.
    """
    tensors = {tensor.name: tensor for tensor in header.tensors}
    _, number, part = name.split(".", 2)
    last = int(number) if part.startswith("block.") else 0
    for k in range(int(number), last - 1, -1):
        if found := tensors.get(f"head.{k}.{part}"):
            return found
    raise ModelLoadError(f"{display_name(path)} has no tensor {name}; {_REMEDY}")


def _needed(head: MatrixHead) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the tensors, with their shapes, the fastest-changing dimension first."""
    for k in range(head.heads):
        if head.kind == MEDUSA:
            for block in range(head.blocks):
                yield f"head.{k}.block.{block}.weight", (head.width, head.width)
                yield f"head.{k}.block.{block}.bias", (head.width,)
        else:
            yield f"head.{k}.token_embd.weight", (head.inner, head.n_vocab)
            yield f"head.{k}.proj.weight", (head.inner if k else head.width, head.inner)
            yield f"head.{k}.norm.weight", (head.inner,)
            yield f"head.{k}.norm.bias", (head.inner,)
        if head.has_output:
            yield f"head.{k}.output.weight", (head.inner, head.n_vocab)


def _require_sound(path: Path, tensor: TensorInfo, shape: tuple[int, ...]) -> None:
    name, kind = display_name(path), TENSOR_TYPES[tensor.type].name
    if tensor.shape != shape:
        raise ModelLoadError(
            f"{name} has the tensor {tensor.name} of shape {tensor.shape}, not {shape}; {_REMEDY}"
        )
    if kind not in TYPES:
        raise ModelLoadError(
            f"{name} stores {tensor.name} as {kind}, and heads are read as {', '.join(TYPES)}; "
            f"{_REMEDY}"
        )
    if tensor.offset % ALIGNMENT:
        raise ModelLoadError(f"{name} aligns its tensors to less than {ALIGNMENT} bytes; {_REMEDY}")


def _number(path: Path, header: Header, key: str, least: int, most: int) -> int:
    value = header.own(key)
    if type(value) is int and least <= value <= most:
        return value
    shown = "is missing" if value is None else f"is {value!r}"[:60]
    raise ModelLoadError(
        f"{display_name(path)}: {header.architecture}.{key} {shown}, not a number from {least} to "
        f"{most}; {_REMEDY}"
    )
