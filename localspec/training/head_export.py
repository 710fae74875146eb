"""GGUF of trained heads, which draft for one target and use its embedding and output matrices."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from localspec.conversion.published import tensor_of_rows
from localspec.gguf.rope_rows import interleaved
from localspec.gguf.writer import TensorType, write_gguf
from localspec.training.chat_tokens import BEGIN_ID
from localspec.training.gguf_export import (
    Floats,
    Sizes,
    Weights,
    Writer,
    attention_output_and_feed_forward,
)

# Rows of a block of DFlash, and its layers.
BLOCK, DFLASH_LAYERS = 8, 2
# Medusa heads, and the residual blocks of each.
MEDUSA_HEADS, MEDUSA_BLOCKS = 5, 2
# The target's embedding of this token stands for a token that is not known yet: it begins a text,
# and is never drafted.
MASK_ID = BEGIN_ID
_TYPE = "q8_0"


def export_eagle3(
    sizes: Sizes, reads: Sequence[int], weights: Weights, tokenizer: Path, path: Path, **about: str
) -> None:
    """Write an EAGLE-3 head.

    sizes: of its target. reads: the target's layers whose input rows it reads. weights: by their
    names in `Eagle3Head`. tokenizer, about: as in `gguf_export.export`.
    """
    with Writer(path, "eagle3", tokenizer, _TYPE, **about) as writer:
        writer.add_sizes(replace(sizes, layers=1))
        writer.gguf.add_array("eagle3.target_layers", list(reads))
        writer.gguf.add_uint32("eagle3.target_hidden_size", sizes.width)
        writer.add(eagle3_tensors(sizes, weights))


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


def export_dflash(
    sizes: Sizes, reads: Sequence[int], weights: Weights, tokenizer: Path, path: Path, **about: str
) -> None:
    """Write a DFlash drafter. The arguments: as in `export_eagle3`, names as in `DFlashBlock`."""
    with Writer(path, "dflash", tokenizer, _TYPE, **about) as writer:
        writer.add_sizes(replace(sizes, layers=DFLASH_LAYERS))
        writer.gguf.add_array("dflash.target_layers", list(reads))
        writer.gguf.add_uint32("dflash.block_size", BLOCK)
        writer.gguf.add_bool("dflash.attention.causal", False)
        writer.gguf.add_mask_token_id(MASK_ID)
        writer.add(dflash_tensors(weights))


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


def export_medusa(
    sizes: Sizes,
    _reads: Sequence[int],
    weights: Weights,
    _tokenizer: Path,
    path: Path,
    **about: str,
) -> None:
    """Write Medusa heads, whose layout docs/heads.md describes; names as in `MedusaHeads`.

    The arguments: as in `export_eagle3`. They read the target's last row alone, and its tokens.
    """
    said = {f"general.{key.replace('__', '.')}": value for key, value in about.items()}
    write_medusa(sizes, weights, path, TensorType.Q8_0, said)


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
                values = weights[f"{own}.{name}"]
                rows = values.__getitem__
                tensors.append(tensor_of_rows(f"{theirs}.{name}", values.shape, type_, rows))
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
