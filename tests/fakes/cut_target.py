"""Tiny targets for training: random weights, a vocabulary of a few hundred tokens, four layers."""

from pathlib import Path

import gguf
import numpy as np
from fakes import tiny
from fakes.tiny import HEADS, HIDDEN, KEY_VALUE_HEADS, N_VOCAB, TURNS

WIDTH, LAYERS, HEAD = 64, 4, 16


def write_cut_target(
    path: Path, family: str = "llama", *, tied: bool = False, quantised: bool = False, seed: int = 3
) -> Path:
    """A target of an architecture whose layers can be cut out: `llama`, `qwen2` or `qwen3`.

    tied: whether its embedding is its output matrix. quantised: whether its matrices are Q8_0.
    """
    rng, writer = np.random.default_rng(seed), gguf.GGUFWriter(path, family)
    kind = gguf.GGMLQuantizationType.Q8_0 if quantised else gguf.GGMLQuantizationType.F32

    def matrix(name: str, rows: int, columns: int, scale: float = 0.25) -> None:
        values = (rng.standard_normal((rows, columns)) * scale).astype(np.float32)
        data = gguf.quants.quantize(values, kind)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=kind)

    def norm(name: str, size: int = WIDTH) -> None:
        writer.add_tensor(f"{name}.weight", rng.uniform(0.8, 1.2, size).astype(np.float32))

    writer.add_context_length(512)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_VALUE_HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HEAD)
    (tiny._pieces if family == "llama" else tiny._byte_pairs)(writer)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_chat_template(TURNS)
    matrix("token_embd", N_VOCAB, WIDTH, 1.0)
    if not tied:
        matrix("output", N_VOCAB, WIDTH, 0.5)
    norm("output_norm")
    for layer in range(LAYERS):
        blk = f"blk.{layer}"
        norm(f"{blk}.attn_norm")
        norm(f"{blk}.ffn_norm")
        matrix(f"{blk}.attn_q", HEADS * HEAD, WIDTH)
        for name in ("attn_k", "attn_v"):
            matrix(f"{blk}.{name}", KEY_VALUE_HEADS * HEAD, WIDTH)
        matrix(f"{blk}.attn_output", WIDTH, HEADS * HEAD)
        matrix(f"{blk}.ffn_gate", HIDDEN, WIDTH)
        matrix(f"{blk}.ffn_up", HIDDEN, WIDTH)
        matrix(f"{blk}.ffn_down", WIDTH, HIDDEN)
        if family == "qwen3":
            norm(f"{blk}.attn_q_norm", HEAD)
            norm(f"{blk}.attn_k_norm", HEAD)
        if family == "qwen2":
            for name, heads in (("q", HEADS), ("k", KEY_VALUE_HEADS), ("v", KEY_VALUE_HEADS)):
                values = rng.standard_normal(heads * HEAD) * 0.5
                writer.add_tensor(f"{blk}.attn_{name}.bias", values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def letters(count: int) -> list[str]:
    """Different prompts of a few letters that the vocabulary has."""
    rng = np.random.default_rng(5)
    pairs = [f"{a}{b}" for a in "abcdef" for b in "nrst"]
    return ["".join(rng.choice(pairs, 4)) + f" {number}" for number in range(count)]
