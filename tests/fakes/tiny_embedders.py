"""Tiny embedding models and rerankers with random weights."""

from pathlib import Path

import gguf
import numpy as np
from fakes.tiny import FAMILIES, HEADS, HIDDEN, LAYERS, N_VOCAB, WIDTH, _Writer, write_tiny

MEAN, CLS, LAST, RANK = (
    gguf.PoolingType.MEAN,
    gguf.PoolingType.CLS,
    gguf.PoolingType.LAST,
    gguf.PoolingType.RANK,
)
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"{a}{b}" for a in "abcdef" for b in "nrst"]
# WordPiece: what begins a word has a mark, and what goes on has none.
_TOKENS = [*_SPECIAL, *(f"▁{each}" for each in (*WORDS, *"abcdefnrst")), *"abcdefnrst", *WORDS]
EPSILON = 1e-12


def write_bert(
    path: Path,
    pooling: gguf.PoolingType = MEAN,
    *,
    context: int = 64,
    lost: str = "nothing",
    more_tokens: int = 0,
) -> Path:
    """A BERT; with RANK, one whose head gives a score.

    lost: tensors that it has not begin so. more_tokens: of the vocabulary, in no text.
    """
    tokens = [*_TOKENS, *(f"▁{number}" for number in range(more_tokens))]
    header = gguf.GGUFWriter(path, "bert")
    random = np.random.default_rng(int(pooling))

    def add(name: str, *shape: int) -> None:
        values = random.standard_normal(shape) * 0.3 + name.endswith("norm.weight")
        if not name.startswith(lost):
            header.add_tensor(name, values.astype(np.float32))

    header.add_context_length(context)
    header.add_embedding_length(WIDTH)
    header.add_feed_forward_length(HIDDEN)
    header.add_block_count(LAYERS)
    header.add_head_count(HEADS)
    header.add_layer_norm_eps(EPSILON)
    header.add_causal_attention(False)
    header.add_pooling_type(pooling)
    header.add_tokenizer_model("bert")
    header.add_token_list(tokens)
    header.add_token_types([3] * len(_SPECIAL) + [1] * (len(tokens) - len(_SPECIAL)))
    header.add_token_type_count(2)
    header.add_unk_token_id(1)
    header.add_bos_token_id(2)
    header.add_sep_token_id(3)
    header.add_pad_token_id(0)
    add("token_embd.weight", len(tokens), WIDTH)
    add("token_types.weight", 2, WIDTH)
    add("position_embd.weight", context, WIDTH)
    norms = ["token_embd_norm"]
    for layer in range(LAYERS):
        blk = f"blk.{layer}"
        for name, rows, columns in (
            *((f"attn_{each}", WIDTH, WIDTH) for each in ("q", "k", "v", "output")),
            ("ffn_up", HIDDEN, WIDTH),
            ("ffn_down", WIDTH, HIDDEN),
        ):
            add(f"{blk}.{name}.weight", rows, columns)
            add(f"{blk}.{name}.bias", rows)
        norms += [f"{blk}.attn_output_norm", f"{blk}.layer_output_norm"]
    for name in norms:
        add(f"{name}.weight", WIDTH)
        add(f"{name}.bias", WIDTH)
    if pooling == RANK:
        add("cls.weight", WIDTH, WIDTH)
        add("cls.bias", WIDTH)
        add("cls.output.weight", 1, WIDTH)
        add("cls.output.bias", 1)
    header.write_header_to_file()
    header.write_kv_data_to_file()
    header.write_tensors_to_file()
    header.close()
    return path


def write_causal(path: Path, pooling: gguf.PoolingType = LAST, *, context: int = 2048) -> Path:
    """A Qwen3 that embeds by its last token; with RANK, one that says yes or no of a document."""

    def layers(writer: _Writer) -> None:
        FAMILIES["qwen3"](writer)
        writer.gguf.add_pooling_type(pooling)
        writer.gguf.add_add_eos_token(True)
        if pooling == RANK:
            writer.gguf.add_classifier_output_labels(["yes", "no"])
            writer.gguf.add_chat_template(
                [{"name": "rerank", "template": "q {query} d {document}"}]
            )
            writer.matrix("cls.output", 2, WIDTH)

    return write_tiny(path, "qwen3", quantised=False, context=context, layers=layers)


__all__ = ["CLS", "LAST", "MEAN", "N_VOCAB", "RANK", "write_bert", "write_causal"]
