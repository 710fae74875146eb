"""GGUF of a trained model or head, with its tokenizer, source and licence."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from gguf import TokenType

from localspec.gguf.writer import TensorType
from localspec.training.bundled_pair.chat_tokens import BEGIN, BEGIN_ID, END, END_ID, TURN
from localspec.training.head_export import write_medusa, write_weights
from localspec.training.sizes import CONTEXT, Sizes, Weights
from localspec.training.tensor_layouts import (
    BLOCK,
    DFLASH_LAYERS,
    DFLASH_LAYOUT,
    EAGLE3_LAYOUT,
    file_tensors,
    llama_layout,
)

# What readers of the file sample at: a small model that recites is best near its likeliest token.
_TEMPERATURE = 0.2
# The target's embedding of this token stands for a token that is not known yet: it begins a text,
# and is never drafted.
MASK_ID = BEGIN_ID
# Of the matrices of heads.
_HEAD_TYPE = TensorType.Q8_0
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
    own = {"general.sampling.temp": _TEMPERATURE, "tokenizer.chat_template": CHAT_TEMPLATE}
    shape = sizes.metadata("llama", layers=sizes.layers, context=CONTEXT)
    metadata = {**_said(about), **shape, **own, **_vocabulary(tokenizer)}
    tensors = file_tensors(llama_layout(sizes.layers), weights, sizes.heads)
    write_weights(path, "llama", metadata, tensors, TensorType[type_.upper()])


def export_eagle3(
    sizes: Sizes, reads: Sequence[int], weights: Weights, tokenizer: Path, path: Path, **about: str
) -> None:
    """Write an EAGLE-3 head.

    sizes: of its target. reads: the target's layers whose input rows it reads. weights: by their
    names in `Eagle3Head`. tokenizer, about: as in `export`.
    """
    own = {"eagle3.target_layers": [*reads], "eagle3.target_hidden_size": sizes.width}
    shape = sizes.metadata("eagle3", layers=1, context=CONTEXT)
    metadata = {**_said(about), **shape, **own, **_vocabulary(tokenizer)}
    tensors = file_tensors(EAGLE3_LAYOUT, weights, sizes.heads)
    write_weights(path, "eagle3", metadata, tensors, _HEAD_TYPE)


def export_dflash(
    sizes: Sizes, reads: Sequence[int], weights: Weights, tokenizer: Path, path: Path, **about: str
) -> None:
    """Write a DFlash drafter. The arguments: as in `export_eagle3`, names as in `DFlashBlock`."""
    own = {
        "dflash.target_layers": [*reads],
        "dflash.block_size": BLOCK,
        "dflash.attention.causal": False,
        "tokenizer.ggml.mask_token_id": MASK_ID,
    }
    shape = sizes.metadata("dflash", layers=DFLASH_LAYERS, context=CONTEXT)
    metadata = {**_said(about), **shape, **own, **_vocabulary(tokenizer)}
    tensors = file_tensors(DFLASH_LAYOUT, weights)
    write_weights(path, "dflash", metadata, tensors, _HEAD_TYPE)


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
    write_medusa(sizes, weights, path, _HEAD_TYPE, _said(about))


def _said(about: Mapping[str, str]) -> dict[str, str]:
    return {f"general.{key.replace('__', '.')}": value for key, value in about.items()}


def _vocabulary(path: Path) -> dict[str, object]:
    bpe = json.loads(path.read_text(encoding="utf-8"))["model"]
    tokens = sorted(bpe["vocab"], key=bpe["vocab"].__getitem__)
    special = {BEGIN, TURN, END}
    types = [TokenType.CONTROL if each in special else TokenType.NORMAL for each in tokens]
    merges = [each if isinstance(each, str) else " ".join(each) for each in bpe["merges"]]
    found: dict[str, object] = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": [each.value for each in types],
        "merges": merges,
        "bos_token_id": BEGIN_ID,
        "eos_token_id": END_ID,
        "add_bos_token": True,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in found.items()}
