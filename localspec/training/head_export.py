"""GGUF of trained heads, which draft for one target and use its embedding and output matrices."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from localspec.conversion.published import file_type, tensor_of
from localspec.gguf.rope_rows import interleaved
from localspec.gguf.writer import TensorType, write_gguf
from localspec.training.sizes import Floats, Sizes, Weights

# Rows of a block of DFlash, and its layers.
BLOCK, DFLASH_LAYERS = 8, 2
# Medusa heads, and the residual blocks of each.
MEDUSA_HEADS, MEDUSA_BLOCKS = 5, 2


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


def eagle3_tensors(sizes: Sizes, weights: Weights) -> Weights:
    """The weights of an `Eagle3Head` by the names that llama.cpp gives them, without `.weight`."""
    q, k, v = np.split(weights["qkv.weight"], 3)
    return {
        "fc": weights["fc.weight"],
        "output_norm": weights["norm.weight"],
        "blk.0.attn_norm": weights["token_norm.weight"],
        "blk.0.attn_norm_2": weights["state_norm.weight"],
        "blk.0.attn_q": interleaved(q, sizes.heads),
        "blk.0.attn_k": interleaved(k, sizes.heads),
        "blk.0.attn_v": v,
        **attention_output_and_feed_forward(weights, "", "blk.0"),
    }


def dflash_tensors(weights: Weights) -> Weights:
    """The weights of a `DFlashBlock` by the names of llama.cpp, without `.weight`."""
    found: dict[str, Floats] = {
        "fc": weights["fc.weight"],
        "enc.output_norm": weights["text_norm.weight"],
        "output_norm": weights["norm.weight"],
    }
    for layer in range(DFLASH_LAYERS):
        found |= _dflash_layer(weights, f"layers.{layer}.", f"blk.{layer}")
    return found


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
    tensors = []
    for head in range(MEDUSA_HEADS):
        for block in range(MEDUSA_BLOCKS):
            own, theirs = f"heads.{head}.{block}", f"head.{head}.block.{block}"
            for name in ("weight", "bias"):
                tensors.append(tensor_of(f"{theirs}.{name}", weights[f"{own}.{name}"], type_))
    write_gguf(path, "medusa", {**metadata, **about}, tensors)


def _dflash_layer(weights: Weights, own: str, theirs: str) -> Weights:
    # llama.cpp's DFlash turns the halves of a head, as the training does.
    q, k, v = np.split(weights[f"{own}qkv.weight"], 3)
    return {
        f"{theirs}.attn_norm": weights[f"{own}attention_norm.weight"],
        f"{theirs}.attn_q": q,
        f"{theirs}.attn_k": k,
        f"{theirs}.attn_v": v,
        f"{theirs}.attn_q_norm": weights[f"{own}query_norm.weight"],
        f"{theirs}.attn_k_norm": weights[f"{own}key_norm.weight"],
        **attention_output_and_feed_forward(weights, own, theirs),
    }


def attention_output_and_feed_forward(weights: Weights, own: str, theirs: str) -> Weights:
    """The weights of a layer behind its attention. own: the start of their names in `weights`.

    theirs: the layer's name in llama.cpp.
    """
    gate, up = np.split(weights[f"{own}gate_up.weight"], 2)
    return {
        f"{theirs}.attn_output": weights[f"{own}output.weight"],
        f"{theirs}.ffn_norm": weights[f"{own}feed_norm.weight"],
        f"{theirs}.ffn_gate": gate,
        f"{theirs}.ffn_up": up,
        f"{theirs}.ffn_down": weights[f"{own}down.weight"],
    }
