"""Tensor layouts: which tensors of a GGUF have the weights of a module that is trained here.

A layout is read both ways: when a drafter is written, and when one is trained further.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from localspec.gguf.rope_rows import in_halves, interleaved
from localspec.training.sizes import Floats, Weights

# A weight of the module -> the tensors of the file that have its rows, one after the other. All
# names are without `.weight`.
Layout = Mapping[str, Sequence[str]]

# Rows of a block of DFlash, and its layers.
BLOCK, DFLASH_LAYERS = 8, 2
# Medusa heads, and the residual blocks of each.
MEDUSA_HEADS, MEDUSA_BLOCKS = 5, 2
# What is turned in a layer: neighbouring rows in llama.cpp, the halves of a head in the training.
_TURNED = (".attn_q", ".attn_k")

_ATTENTION: Layout = {"qkv": ("attn_q", "attn_k", "attn_v")}
_BEHIND: Layout = {
    "output": ("attn_output",),
    "feed_norm": ("ffn_norm",),
    "gate_up": ("ffn_gate", "ffn_up"),
    "down": ("ffn_down",),
}
_LLAMA_LAYER: Layout = {"attention_norm": ("attn_norm",), **_ATTENTION, **_BEHIND}
_EAGLE3_LAYER: Layout = {
    "token_norm": ("attn_norm",),
    "state_norm": ("attn_norm_2",),
    **_ATTENTION,
    **_BEHIND,
}
_DFLASH_LAYER: Layout = {
    "attention_norm": ("attn_norm",),
    **_ATTENTION,
    "query_norm": ("attn_q_norm",),
    "key_norm": ("attn_k_norm",),
    **_BEHIND,
}


def _layers(layer: Layout, own: str, count: int) -> Layout:
    """Layers that are alike. own: what their names begin with in the module, but for a number."""
    return {
        f"{own}.{number}.{weight}": [f"blk.{number}.{tensor}" for tensor in tensors]
        for number in range(count)
        for weight, tensors in layer.items()
    }


def llama_layout(layers: int) -> Layout:
    """The layout of a `Transformer`."""
    ends = {"embedding": ("token_embd",), "norm": ("output_norm",)}
    return {**ends, **_layers(_LLAMA_LAYER, "blocks", layers)}


# Of an `Eagle3Head`, and of a `DFlashBlock`.
EAGLE3_LAYOUT: Layout = {
    "fc": ("fc",),
    "norm": ("output_norm",),
    **{name: [f"blk.0.{each}" for each in tensors] for name, tensors in _EAGLE3_LAYER.items()},
}
DFLASH_LAYOUT: Layout = {
    "fc": ("fc",),
    "text_norm": ("enc.output_norm",),
    "norm": ("output_norm",),
    **_layers(_DFLASH_LAYER, "layers", DFLASH_LAYERS),
}
# Of `MedusaHeads`, with the endings of all names.
MEDUSA_NAMES = {
    f"heads.{head}.{block}.{part}": f"head.{head}.block.{block}.{part}"
    for head in range(MEDUSA_HEADS)
    for block in range(MEDUSA_BLOCKS)
    for part in ("weight", "bias")
}


def file_tensors(layout: Layout, weights: Weights, heads: int | None = None) -> Weights:
    """The tensors of a file, by their names without `.weight`.

    weights: of the module, by their names. heads: of attention whose queries and keys llama.cpp
    turns by neighbours; None: it turns the halves of a head, as the training does.
    """
    found = dict[str, Floats]()
    for weight, tensors in layout.items():
        parts = np.split(weights[f"{weight}.weight"], len(tensors))
        found |= zip(tensors, parts, strict=True)
    if heads:
        turned = [name for name in found if name.endswith(_TURNED)]
        found |= {name: interleaved(found[name], heads) for name in turned}
    return found


def module_weights(
    layout: Layout, tensor: Callable[[str], Floats], heads: int | None = None
) -> dict[str, Floats]:
    """The weights of a module, by their names; undoes `file_tensors`.

    tensor: returns a tensor of the file by its name.
    """

    def part(name: str) -> Floats:
        found = tensor(f"{name}.weight")
        return in_halves(found, heads) if heads and name.endswith(_TURNED) else found

    return {
        f"{weight}.weight": np.concatenate([part(name) for name in tensors])
        for weight, tensors in layout.items()
    }
