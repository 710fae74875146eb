"""Tiny models with random weights and whatever vocabulary a test wants, as GGUF files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import gguf
import numpy as np

WIDTH = 64


def words(count: int = 600, changed: Mapping[int, str] = {}) -> list[str]:
    """A vocabulary whose token i is written `wi`, but for `changed`."""
    return [changed.get(token, f"w{token}") for token in range(count)]


def write_model(
    path: Path,
    tokens: Sequence[str | bytes],
    *,
    tokenizer: str = "gpt2",
    pre: str | None = "gpt-2",
    layers: int = 2,
    context: int = 512,
    name: str | None = None,
    **keys: int | bool | str,
) -> Path:
    """Write a model. name: general.name. keys: of `tokenizer.`, such as `ggml__bos_token_id`.

    `__` is a dot.
    """
    writer = gguf.GGUFWriter(path, "llama")
    if name:
        writer.add_name(name)
    writer.add_context_length(context)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(2)
    writer.add_block_count(layers)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model(tokenizer)
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(list(tokens))
    writer.add_token_merges(["a b"])
    _add_keys(writer, keys)
    _add_tensors(writer, len(tokens), layers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_keys(writer: gguf.GGUFWriter, keys: Mapping[str, int | bool | str]) -> None:
    for name, value in keys.items():
        key = f"tokenizer.{name.replace('__', '.')}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_string(key, value)


def _add_tensors(writer: gguf.GGUFWriter, n_vocab: int, layers: int) -> None:
    rng = np.random.default_rng(0)
    matrices = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]

    def add(name: str, rows: int) -> None:
        values = (rng.standard_normal((rows, WIDTH)) * 0.1).astype(np.float32)
        writer.add_tensor(f"{name}.weight", values)

    add("token_embd", n_vocab)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for layer in range(layers):
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{norm}.weight", np.ones(WIDTH, np.float32))
        for name in matrices:
            add(f"blk.{layer}.{name}", WIDTH)
