"""GGUF of a trained model or head, with its tokenizer, source and licence."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import quantize

from localspec.gguf.rope_rows import interleaved
from localspec.gguf.writer import TensorType
from localspec.training.bundled_pair.chat_tokens import BEGIN, BEGIN_ID, END, END_ID, TURN
from localspec.training.head_export import (
    BLOCK,
    DFLASH_LAYERS,
    attention_output_and_feed_forward,
    dflash_tensors,
    eagle3_tensors,
    write_medusa,
)
from localspec.training.sizes import CONTEXT, EPSILON, Sizes, Weights

# What readers of the file sample at: a small model that recites is best near its likeliest token.
_TEMPERATURE = 0.2
# The target's embedding of this token stands for a token that is not known yet: it begins a text,
# and is never drafted.
MASK_ID = BEGIN_ID
# Of the matrices of heads.
_HEAD_TYPE = "q8_0"
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def export(
    sizes: Sizes, weights: Weights, tokenizer: Path, path: Path, *, type_: str, **about: str
) -> None:
    """Write a trained model as a GGUF.

    weights: by their names in `Transformer`, each matrix (outputs, inputs). tokenizer: a BPE of the
    tokenizers library. type_: "q8_0", "q4_0" or "f16". about: `general.*` metadata, dots as in
    license__link.
    """
    with Writer(path, "llama", tokenizer, type_, **about) as writer:
        writer.add_sizes(sizes)
        writer.gguf.add_sampling_temp(_TEMPERATURE)
        writer.gguf.add_chat_template(CHAT_TEMPLATE)
        writer.add(_tensors(sizes, weights))


def export_eagle3(
    sizes: Sizes, reads: Sequence[int], weights: Weights, tokenizer: Path, path: Path, **about: str
) -> None:
    """Write an EAGLE-3 head.

    sizes: of its target. reads: the target's layers whose input rows it reads. weights: by their
    names in `Eagle3Head`. tokenizer, about: as in `export`.
    """
    with Writer(path, "eagle3", tokenizer, _HEAD_TYPE, **about) as writer:
        writer.add_sizes(replace(sizes, layers=1))
        writer.gguf.add_array("eagle3.target_layers", list(reads))
        writer.gguf.add_uint32("eagle3.target_hidden_size", sizes.width)
        writer.add(eagle3_tensors(sizes, weights))


def export_dflash(
    sizes: Sizes, reads: Sequence[int], weights: Weights, tokenizer: Path, path: Path, **about: str
) -> None:
    """Write a DFlash drafter. The arguments: as in `export_eagle3`, names as in `DFlashBlock`."""
    with Writer(path, "dflash", tokenizer, _HEAD_TYPE, **about) as writer:
        writer.add_sizes(replace(sizes, layers=DFLASH_LAYERS))
        writer.gguf.add_array("dflash.target_layers", list(reads))
        writer.gguf.add_uint32("dflash.block_size", BLOCK)
        writer.gguf.add_bool("dflash.attention.causal", False)
        writer.gguf.add_mask_token_id(MASK_ID)
        writer.add(dflash_tensors(weights))


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


class Writer:
    """A GGUF that is being written; leave the `with` to finish it. The arguments: as in export."""

    def __init__(
        self, path: Path, architecture: str, tokenizer: Path, type_: str, **about: str
    ) -> None:
        self.architecture = architecture
        self.gguf = gguf.GGUFWriter(path, architecture)
        self._kind = gguf.GGMLQuantizationType[type_.upper()]
        for key, value in about.items():
            self.gguf.add_string(f"general.{key.replace('__', '.')}", value)
        self.gguf.add_file_type(gguf.LlamaFileType[f"MOSTLY_{type_.upper()}"])
        _add_tokenizer(self.gguf, tokenizer)

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.gguf.write_header_to_file()
        self.gguf.write_kv_data_to_file()
        self.gguf.write_tensors_to_file()
        self.gguf.close()

    def add_sizes(self, sizes: Sizes) -> None:
        """Add the metadata of a shape."""
        self.gguf.add_block_count(sizes.layers)
        self.gguf.add_context_length(CONTEXT)
        self.gguf.add_embedding_length(sizes.width)
        self.gguf.add_feed_forward_length(sizes.feed_forward)
        self.gguf.add_head_count(sizes.heads)
        self.gguf.add_head_count_kv(sizes.heads)
        self.gguf.add_layer_norm_rms_eps(EPSILON)
        self.gguf.add_rope_dimension_count(sizes.head)
        self.gguf.add_rope_freq_base(sizes.rope_base)
        self.gguf.add_vocab_size(sizes.vocabulary)

    def add(self, tensors: Weights) -> None:
        """Add tensors by their names without `.weight`; matrices become the file's type."""
        for name, values in tensors.items():
            weight = np.ascontiguousarray(values, np.float32)
            if weight.ndim == 1:
                self.gguf.add_tensor(f"{name}.weight", weight)
            else:
                data = quantize(weight, self._kind)
                self.gguf.add_tensor(f"{name}.weight", data, raw_dtype=self._kind)


def _add_tokenizer(writer: gguf.GGUFWriter, path: Path) -> None:
    bpe = json.loads(path.read_text(encoding="utf-8"))["model"]
    tokens = sorted(bpe["vocab"], key=bpe["vocab"].__getitem__)
    special = {BEGIN, TURN, END}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(
        [gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token in tokens]
    )
    writer.add_token_merges(
        [merge if isinstance(merge, str) else " ".join(merge) for merge in bpe["merges"]]
    )
    writer.add_bos_token_id(BEGIN_ID)
    writer.add_eos_token_id(END_ID)
    writer.add_add_bos_token(True)


def _tensors(sizes: Sizes, weights: Weights) -> Weights:
    """The weights by the names that llama.cpp gives them, without `.weight`."""
    tensors = {"token_embd": weights["embedding.weight"], "output_norm": weights["norm.weight"]}
    for number in range(sizes.layers):
        own, theirs = f"blocks.{number}.", f"blk.{number}"
        q, k, v = np.split(weights[f"{own}qkv.weight"], 3)
        tensors |= {
            f"{theirs}.attn_norm": weights[f"{own}attention_norm.weight"],
            f"{theirs}.attn_q": interleaved(q, sizes.heads),
            f"{theirs}.attn_k": interleaved(k, sizes.heads),
            f"{theirs}.attn_v": v,
            **attention_output_and_feed_forward(weights, own, theirs),
        }
    return tensors
