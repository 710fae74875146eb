"""Medusa heads and MLP speculators, as they are published, for a GGUF.

docs/heads.md says which layouts are known, and what the GGUF has.
"""

import re
from collections.abc import Mapping

import numpy as np

from localspec.conversion.head import ConvertedHead
from localspec.conversion.published import Checkpoint, PublishedTensor
from localspec.errors import ModelLoadError
from localspec.gguf.writer import Floats, TensorData, TensorType

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
_MOST_HEADS = 1000
_Tensors = Mapping[str, PublishedTensor]


def matrix_heads(
    checkpoint: Checkpoint, type_: TensorType, *, own_output: bool = True
) -> ConvertedHead:
    """Return the heads of a checkpoint.

    type_: of the matrices. own_output: False leaves the output matrices out, so that the target's
    is used. Raises ModelLoadError for a layout that is not known.
    """
    published = {_short(name): each for name, each in checkpoint.tensors.items()}
    renamed: dict[str, PublishedTensor] = {}
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
    is_mlp = layout is _MLP
    metadata = _mlp(renamed, checkpoint.config) if is_mlp else _medusa(renamed)
    architecture = "mlp-speculator" if is_mlp else "medusa"
    kept = {name: each for name, each in renamed.items() if own_output or ".output." not in name}
    tensors = [each.written(name, type_) for name, each in kept.items()]
    keys = {f"{architecture}.{key}": value for key, value in metadata.items()}
    return ConvertedHead(architecture, keys, [*tensors, *_missing_biases(kept)])


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


def _renamed(published: _Tensors, layout: Mapping[str, str]) -> dict[str, PublishedTensor]:
    """The tensors of a layout, by their names here."""
    found = dict[str, PublishedTensor]()
    for name, each in published.items():
        numbers = re.findall(r"(?<![^.])\d+(?![^.])", name)
        pattern = re.sub(r"(?<![^.])\d+(?![^.])", "#", name)
        for known, new in layout.items():
            if re.sub(r"(?<![^.])[NM](?![^.])", "#", known) == pattern:
                values = dict(zip("NM", numbers, strict=False))
                parts = [values.get(part, part) for part in new.split(".")]
                found[".".join(parts)] = each
    return found


def _medusa(tensors: _Tensors) -> dict[str, object]:
    """The metadata of Medusa heads, which their tensors tell."""
    heads, blocks = _count(tensors, r"head\.(\d+)\."), _count(tensors, r"head\.0\.block\.(\d+)\.")
    output = tensors.get("head.0.output.weight")
    if output is None or len(output.shape) != 2:
        raise ModelLoadError("the heads have no output matrix; pass all files of the heads")
    tokens, width = output.shape
    return {
        "head_count": heads,
        "block_count": blocks,
        "embedding_length": width,
        "vocab_size": tokens,
    }


def _mlp(tensors: _Tensors, config: Mapping[str, object]) -> dict[str, object]:
    """The metadata of an MLP speculator."""
    projection, embedding = (
        tensors.get(f"head.0.{part}.weight") for part in ("proj", "token_embd")
    )
    if projection is None or embedding is None or len(projection.shape) != 2:
        raise ModelLoadError("the speculator lacks proj.0 or emb.0; pass all of its files")
    heads, scale = config.get("n_predict"), config.get("scale_input")
    if type(heads) is not int or heads not in range(1, _MOST_HEADS) or type(scale) is not bool:
        raise ModelLoadError(
            "config.json does not say n_predict and scale_input, which an MLP speculator needs; "
            "put it beside the file"
        )
    inner, width = projection.shape
    return {
        "head_count": heads,
        "embedding_length": width,
        "inner_length": inner,
        "vocab_size": embedding.shape[0],
        "scale_input": scale,
    }


def _count(tensors: _Tensors, pattern: str) -> int:
    found = [int(match[1]) for name in tensors if (match := re.match(pattern, name))]
    return max(found, default=-1) + 1
