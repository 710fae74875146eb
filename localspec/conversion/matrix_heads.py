"""Medusa heads and MLP speculators, as they are published, for a GGUF.

docs/heads.md says which layouts are known, and what the GGUF has.
"""

import re
from collections.abc import Mapping
from typing import cast

import numpy as np

from localspec.conversion.head import ConvertedHead
from localspec.conversion.published import Checkpoint, PublishedTensor
from localspec.errors import InvalidValueError, ModelLoadError
from localspec.gguf.facts import Facts
from localspec.gguf.matrix_heads import KINDS, MOST_BLOCKS, MOST_HEADS, MatrixHead
from localspec.gguf.writer import Floats, TensorData, TensorType
from localspec.loading.matrix_heads import require_target

_PREFIXES = ("medusa_heads.", "medusa_head.", "speculator.")
# The tensors of each published layout, and what they are here; N and M stand for numbers.
_MEDUSA = {
    "N.M.linear.weight": "head.N.block.M.weight",
    "N.M.linear.bias": "head.N.block.M.bias",
    "N.M.weight": "head.N.output.weight",
}
_VLLM_MEDUSA = {
    "blocks.N.layers.M.weight": "head.N.block.M.weight",
    "blocks.N.layers.M.bias": "head.N.block.M.bias",
    "lm_heads.N.weight": "head.N.output.weight",
}
_MLP = {
    "emb.N.weight": "head.N.token_embd.weight",
    "proj.N.weight": "head.N.proj.weight",
    "ln.N.weight": "head.N.norm.weight",
    "ln.N.bias": "head.N.norm.bias",
    "head.N.weight": "head.N.output.weight",
}
_Tensors = Mapping[str, PublishedTensor]
_Shape = tuple[int, ...]


def matrix_heads(
    checkpoint: Checkpoint, type_: TensorType, *, own_output: bool = True
) -> ConvertedHead:
    """Return the heads of a checkpoint.

    type_: of the matrices. own_output: False leaves the output matrices out, so that the target's
    is used. Raises ModelLoadError for a layout that is not known, and for a checkpoint that lacks a
    tensor or has one of another shape.
    """
    published = {_short(name): name for name in checkpoint.types}
    renamed: dict[str, str] = {}
    for layout in (_MEDUSA, _VLLM_MEDUSA, _MLP):
        renamed = _renamed(published, layout)
        if any(name.endswith(".weight") and ".output." not in name for name in renamed):
            break
    else:
        names = ", ".join(list(published)[:3]) or "none"
        raise ModelLoadError(
            f"{checkpoint.name} holds no EAGLE-3 head, no Medusa heads and no MLP speculator: its "
            f"tensors are {names}, ...; pass the folder of published heads"
        )
    if "token_map" in published:
        raise ModelLoadError(
            f"{checkpoint.name} has heads for a part of the vocabulary (token_map), which "
            "cannot be converted; pass heads for the whole vocabulary"
        )
    tensors = {name: _readable(checkpoint, each) for name, each in renamed.items()}
    is_mlp = layout is _MLP
    if is_mlp:
        metadata, shapes = _mlp(tensors, checkpoint)
    else:
        metadata, shapes = _medusa(tensors, checkpoint, layout)
    _require(checkpoint, tensors, shapes, layout)
    if is_mlp and not own_output and metadata["inner_length"] != metadata["embedding_length"]:
        raise InvalidValueError(
            f"{checkpoint.name} has rows of {metadata['inner_length']} numbers, which the target's "
            "output matrix does not take; leave --targets-output out"
        )
    architecture = "mlp-speculator" if is_mlp else "medusa"
    kept = {name: each for name, each in tensors.items() if own_output or ".output." not in name}
    written = [each.written(name, type_) for name, each in kept.items() if name in shapes]
    keys = {f"{architecture}.{key}": value for key, value in metadata.items()}
    return ConvertedHead(architecture, keys, [*written, *_missing_biases(kept)])


def require_right_target(head: ConvertedHead, checkpoint: Checkpoint, target: Facts) -> None:
    """Raise DrafterMismatchError for heads of another target, by the checkpoint's name."""
    width, n_vocab = (
        cast(int, head.metadata[f"{head.architecture}.{key}"])
        for key in ("embedding_length", "vocab_size")
    )
    described = MatrixHead(KINDS[head.architecture], 1, width, width, n_vocab)
    require_target(checkpoint.source, described, target)


def _readable(checkpoint: Checkpoint, name: str) -> PublishedTensor:
    """A tensor of floats. Raises ModelLoadError for one that cannot be read as such."""
    tensor = checkpoint.tensors.get(name)
    if tensor is None or tensor.whole_numbers() is not None:
        raise ModelLoadError(
            f"{checkpoint.name} stores {name!r} as {checkpoint.types[name]}; pass the checkpoint "
            "in floats of 16 or 32 bits"
        )
    return tensor


def _require(
    checkpoint: Checkpoint,
    tensors: _Tensors,
    shapes: Mapping[str, _Shape],
    layout: Mapping[str, str],
) -> None:
    """Raise ModelLoadError for a tensor that is missing or of another shape."""
    for name, shape in shapes.items():
        tensor = tensors.get(name)
        if tensor is None:
            raise ModelLoadError(
                f"{checkpoint.name} has no tensor {_published(name, layout, tensors)}; download "
                "every part of it"
            )
        if tensor.shape != shape:
            shown, needed = (" x ".join(map(str, each)) for each in (tensor.shape, shape))
            raise ModelLoadError(
                f"{checkpoint.name} has {tensor.name!r} of shape {shown or 'one number'}, not "
                f"{needed}; download it again"
            )


def _published(name: str, layout: Mapping[str, str], tensors: _Tensors) -> str:
    """What a tensor is called in a layout, from its name here."""
    numbers = re.findall(r"\d+", name)
    pattern = re.sub(r"\d+", "#", name)
    known = next(k for k, new in layout.items() if re.sub(r"\b[NM]\b", "#", new) == pattern)
    # The output matrices of Medusa heads have the number behind the last block.
    blocks = _last_number(tensors, r"head\.\d+\.block\.(\d+)\.") + 1
    values = {"N": numbers[0], "M": numbers[1] if len(numbers) > 1 else str(blocks)}
    return ".".join(values.get(part, part) for part in known.split("."))


def _missing_biases(tensors: _Tensors) -> list[TensorData]:
    """Zeros for Medusa's blocks without biases."""
    found = []
    for name, each in tensors.items():
        bias = name.replace(".weight", ".bias")
        if ".block." in name and bias not in tensors:
            zeros: Floats = np.zeros(each.shape[0], np.float32)
            found.append(TensorData.of(bias, zeros, TensorType.F32))
    return found


def _short(name: str) -> str:
    """The name of a tensor without what stands before all names."""
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name


def _renamed(published: Mapping[str, str], layout: Mapping[str, str]) -> dict[str, str]:
    """The published names of a layout's tensors, by the names here."""
    found = dict[str, str]()
    for name, each in published.items():
        numbers = re.findall(r"(?<![^.])\d+(?![^.])", name)
        pattern = re.sub(r"(?<![^.])\d+(?![^.])", "#", name)
        for known, new in layout.items():
            if re.sub(r"(?<![^.])[NM](?![^.])", "#", known) == pattern:
                values = dict(zip("NM", numbers, strict=False))
                parts = [values.get(part, part) for part in new.split(".")]
                found[".".join(parts)] = each
    return found


def _medusa(
    tensors: _Tensors, checkpoint: Checkpoint, layout: Mapping[str, str]
) -> tuple[dict[str, object], dict[str, _Shape]]:
    """The metadata of Medusa heads, which their tensors tell, and the shapes that these have."""
    heads = _last_number(tensors, r"head\.(\d+)\.") + 1
    blocks = _last_number(tensors, r"head\.\d+\.block\.(\d+)\.") + 1
    if layout is _MEDUSA:
        # An output matrix stands behind the last block.
        outputs = (each.name for name, each in tensors.items() if ".output." in name)
        blocks = max([blocks, *(int(name.split(".")[-2]) for name in outputs)])
    said = checkpoint.config.get("medusa_num_heads")
    # Some say fewer than there are.
    heads = max(heads, said) if type(said) is int and said <= MOST_HEADS else heads
    _require_count(checkpoint, heads, MOST_HEADS, "heads")
    _require_count(checkpoint, blocks, MOST_BLOCKS, "blocks of each head")
    output = tensors.get("head.0.output.weight")
    if output is None or len(output.shape) != 2:
        raise ModelLoadError(
            f"{checkpoint.name} has no output matrix of its heads; pass all files of the heads"
        )
    tokens, width = output.shape
    has_biases = any(name.endswith(".bias") for name in tensors)
    shapes = dict[str, _Shape]()
    for k in range(heads):
        for i in range(blocks):
            shapes[f"head.{k}.block.{i}.weight"] = width, width
            if has_biases:
                shapes[f"head.{k}.block.{i}.bias"] = (width,)
        shapes[f"head.{k}.output.weight"] = tokens, width
    metadata: dict[str, object] = {
        "head_count": heads,
        "block_count": blocks,
        "embedding_length": width,
        "vocab_size": tokens,
    }
    return metadata, shapes


def _mlp(tensors: _Tensors, checkpoint: Checkpoint) -> tuple[dict[str, object], dict[str, _Shape]]:
    """The metadata of an MLP speculator, and the shapes of its tensors.

    Where its weights are tied, its stages share those of the first, and the projection of the
    second, as the first reads rows of another width.
    """
    config = checkpoint.config
    projection, embedding = (
        tensors.get(f"head.0.{part}.weight") for part in ("proj", "token_embd")
    )
    if not (projection and embedding and len(projection.shape) == len(embedding.shape) == 2):
        raise ModelLoadError(f"{checkpoint.name} lacks proj.0 or emb.0; pass all of its files")
    heads, scale = config.get("n_predict"), config.get("scale_input")
    if type(heads) is not int or heads < 1 or type(scale) is not bool:
        raise ModelLoadError(
            f"{checkpoint.name} has no config.json that says n_predict and scale_input, which an "
            "MLP speculator needs; put it beside the tensors"
        )
    _require_count(checkpoint, heads, MOST_HEADS, "stages (n_predict)")
    (inner, width), tokens = projection.shape, embedding.shape[0]
    tied = config.get("tie_weights") is True
    shapes = dict[str, _Shape]()
    for k in range(heads):
        needed: dict[str, _Shape] = {
            f"head.{k}.token_embd.weight": (tokens, inner),
            f"head.{k}.proj.weight": (inner, inner if k else width),
            f"head.{k}.norm.weight": (inner,),
            f"head.{k}.norm.bias": (inner,),
            f"head.{k}.output.weight": (tokens, inner),
        }
        shapes |= {
            name: shape
            for name, shape in needed.items()
            if not (tied and k) or name in tensors or (k == 1 and ".proj." in name)
        }
    metadata: dict[str, object] = {
        "head_count": heads,
        "embedding_length": width,
        "inner_length": inner,
        "vocab_size": tokens,
        "scale_input": scale,
    }
    return metadata, shapes


def _require_count(checkpoint: Checkpoint, count: int, most: int, what: str) -> None:
    if count > most:
        raise ModelLoadError(
            f"{checkpoint.name} has {count} {what}, and at most {most} can draft; pass other heads"
        )


def _last_number(tensors: _Tensors, pattern: str) -> int:
    found = [int(match[1]) for name in tensors if (match := re.match(pattern, name))]
    return max(found, default=-1)
