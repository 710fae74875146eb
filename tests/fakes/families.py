"""Tiny targets of the families that heads draft for, and of some that hand out no hidden rows.

A target and the heads of the tests find the same few tokens likely, so that some drafts are
accepted and some are not.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fakes import tiny
from fakes.tiny import EXPERTS, HEAD, HEADS, HIDDEN, KEY_VALUE_HEADS, LAYERS, N_VOCAB, WIDTH

# Tokens of a sliding window, and numbers per token that each layer of gemma4 is given besides.
WINDOW, _PER_LAYER = 16, 8


@dataclass(frozen=True)
class Family:
    """A family of targets.

    layers: adds what is its own to a file. reads: the layers whose rows a head reads; the number
    of layers itself means the rows behind the last. seed: of weights with which texts vary.
    """

    layers: Callable[[tiny._Writer], None]
    reads: tuple[int, int, int] = (0, 1, 1)
    seed: int = 0


@cache
def target(family: str) -> Path:
    """A GGUF of one of TARGETS or DEAF, as F32, which finds LIKELY tokens likely; written once."""
    found = {**TARGETS, **DEAF}[family]
    return tiny.write_tiny(
        tiny.tiny_folder() / f"{family}-that-leans.gguf",
        family,
        layers=found.layers,
        quantised=False,
        template=tiny.TURNS,
        leans=True,
        seed=found.seed,
    )


def _gemma4(writer: tiny._Writer) -> None:
    """A sliding window in every other layer, embeddings for each layer, capped logits."""
    header = writer.gguf
    writer.embedding = WIDTH**-0.5  # llama.cpp multiplies them with the root of the width
    tiny._pieces(header)
    header.add_layer_norm_rms_eps(1e-6)
    header.add_sliding_window(WINDOW)
    header.add_sliding_window_pattern([layer % 2 == 0 for layer in range(LAYERS)])
    for key in ("key_length", "value_length", "key_length_swa", "value_length_swa"):
        header.add_uint32(f"gemma4.attention.{key}", HEAD)
    header.add_uint32("gemma4.embedding_length_per_layer_input", _PER_LAYER)
    header.add_float32("gemma4.rope.freq_base_swa", 10000.0)
    header.add_float32("gemma4.final_logit_softcapping", 30.0)
    writer.vector("rope_freqs", HEAD // 2)
    writer.matrix("per_layer_token_embd", N_VOCAB, LAYERS * _PER_LAYER)
    writer.matrix("per_layer_model_proj", LAYERS * _PER_LAYER, WIDTH)
    writer.vector("per_layer_proj_norm", _PER_LAYER)
    for layer in range(LAYERS):
        blk = f"blk.{layer}"
        tiny._attention(writer, layer)
        tiny._feed_forward(writer, layer)
        for name, size in (
            *(("attn_q_norm", HEAD), ("attn_k_norm", HEAD), ("post_attention_norm", WIDTH)),
            *(("post_ffw_norm", WIDTH), ("post_norm", WIDTH)),
        ):
            writer.vector(f"{blk}.{name}", size)
        writer.matrix(f"{blk}.inp_gate", _PER_LAYER, WIDTH)
        writer.matrix(f"{blk}.proj", WIDTH, _PER_LAYER)


def _gpt_oss(writer: tiny._Writer) -> None:
    """A mixture of experts with biases, sinks, and a sliding window in every other layer."""
    header = writer.gguf
    tiny._byte_pairs(header)
    header.add_layer_norm_rms_eps(1e-5)
    header.add_key_length(HEAD)
    header.add_value_length(HEAD)
    header.add_rope_dimension_count(HEAD)
    header.add_sliding_window(WINDOW)
    header.add_expert_count(EXPERTS)
    header.add_expert_used_count(2)
    header.add_expert_feed_forward_length(HIDDEN)
    for layer in range(LAYERS):
        blk = f"blk.{layer}"
        tiny._attention(writer, layer)
        writer.vector(f"{blk}.post_attention_norm")
        writer.vector(f"{blk}.attn_sinks", HEADS)
        writer.bias(f"{blk}.attn_output", WIDTH)
        writer.matrix(f"{blk}.ffn_gate_inp", EXPERTS, WIDTH)
        writer.bias(f"{blk}.ffn_gate_inp", EXPERTS)
        for name, rows, columns in (
            *(("ffn_gate_exps", HIDDEN, WIDTH), ("ffn_up_exps", HIDDEN, WIDTH)),
            ("ffn_down_exps", WIDTH, HIDDEN),
        ):
            writer.matrix(f"{blk}.{name}", EXPERTS, rows, columns)
            writer.bias(f"{blk}.{name}", EXPERTS, rows)


def _qwen2(writer: tiny._Writer) -> None:
    """Biases of queries, keys and values."""
    tiny._byte_pairs(writer.gguf)
    writer.gguf.add_layer_norm_rms_eps(1e-6)
    for layer in range(LAYERS):
        tiny._attention(writer, layer)
        tiny._feed_forward(writer, layer)
        for name, heads in (("q", HEADS), ("k", KEY_VALUE_HEADS), ("v", KEY_VALUE_HEADS)):
            writer.bias(f"blk.{layer}.attn_{name}", heads * HEAD)


def _phi3(writer: tiny._Writer) -> None:
    """One matrix for queries, keys and values, one for gate and up."""
    tiny._pieces(writer.gguf)
    writer.gguf.add_layer_norm_rms_eps(1e-5)
    writer.gguf.add_rope_dimension_count(HEAD)
    for layer in range(LAYERS):
        blk = f"blk.{layer}"
        writer.matrix(f"{blk}.attn_qkv", (HEADS + 2 * KEY_VALUE_HEADS) * HEAD, WIDTH)
        writer.matrix(f"{blk}.attn_output", WIDTH, WIDTH)
        writer.matrix(f"{blk}.ffn_up", 2 * HIDDEN, WIDTH)
        writer.matrix(f"{blk}.ffn_down", WIDTH, HIDDEN)
        writer.vector(f"{blk}.attn_norm")
        writer.vector(f"{blk}.ffn_norm")


TARGETS: Mapping[str, Family] = {
    "llama": Family(tiny.FAMILIES["llama"]),
    "qwen3": Family(tiny.FAMILIES["qwen3"]),
    "qwen35": Family(tiny.FAMILIES["qwen35"], (0, 1, 3)),
    "gemma4": Family(_gemma4, seed=2),
    "gpt-oss": Family(_gpt_oss, (0, 1, LAYERS)),
}
# llama.cpp hands out no hidden rows of these.
DEAF: Mapping[str, Family] = {
    "qwen2": Family(_qwen2),
    "phi3": Family(_phi3),
    **{family: Family(tiny.FAMILIES[family]) for family in ("gemma3", "mamba")},
}
