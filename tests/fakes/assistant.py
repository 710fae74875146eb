"""A tiny gemma4 and an assistant for it, with random weights.

Both find the same few tokens likely, so that some drafts are accepted and some are not.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fakes.eagle3 import HEADS, LIKELY, NARROW, WIDTH, _Weights
from fakes.tiny import N_VOCAB

# Which layers have a sliding window, and its size in tokens.
LAYERS, WINDOW = (True, False, True, False), 24
# Of a layer with a window and of one without: the key-value heads, and the numbers in a key.
SHARED, KEY = (2, 1), (8, 16)
NARROWER = 24
_PREFERENCE = 0.5


@dataclass(frozen=True)
class AssistantShape:
    """How an assistant is stored.

    layers: which have a window. rows: the width of the target's rows. shared, key: as SHARED and
    KEY. width: of its own rows.
    """

    layers: tuple[bool, ...] = (True, True, False)
    rows: int = WIDTH
    width: int = NARROWER
    shared: tuple[int, int] = SHARED
    key: tuple[int, int] = KEY


def write_target(
    path: Path,
    *,
    shared_layers: int = 0,
    layers: tuple[bool, ...] = LAYERS,
    shared: tuple[int, int] = SHARED,
    seed: int = 10,
) -> Path:
    """A gemma4 as F32. shared_layers: the last so many have no keys and values of their own."""
    writer = _Weights(path, "gemma4", WIDTH, seed)
    _header(writer, layers, shared, KEY)
    writer.gguf.add_shared_kv_layers(shared_layers)
    writer.gguf.add_embedding_length_per_layer_input(0)
    writer.gguf.add_final_logit_softcapping(30.0)
    writer.embedding()
    writer.put("output.weight", _output(writer))
    for layer, window in enumerate(layers):
        blk, key, heads = f"blk.{layer}", _of(KEY, window), _of(shared, window)
        _layer(writer, blk, key)
        if layer < len(layers) - shared_layers:
            writer.matrix(f"{blk}.attn_k", heads * key, WIDTH)
            writer.matrix(f"{blk}.attn_v", heads * key, WIDTH)
            writer.norm(f"{blk}.attn_k_norm", key)
    return writer.close()


def write_assistant(
    path: Path, shape: AssistantShape = AssistantShape(), *, seed: int = 10
) -> Path:
    """An assistant of such a target, as F32."""
    writer = _Weights(path, "gemma4-assistant", shape.width, seed + 1)
    _header(writer, shape.layers, shape.shared, shape.key)
    writer.gguf.add_embedding_length_out(shape.rows)
    writer.gguf.add_nextn_predict_layers(len(shape.layers))
    writer.put("token_embd.weight", _output(writer))
    for layer, window in enumerate(shape.layers):
        _layer(writer, f"blk.{layer}", _of(shape.key, window))
    random = writer._random.standard_normal
    # Embeddings are far larger than rows. The large first numbers are handed on.
    before = np.hstack([random((shape.width, shape.rows)) * scale for scale in (0.05, 0.3)])
    before[0] = 0
    before[0, [0, shape.rows]] = 0.25, 0.5
    after = random((shape.rows, shape.width)) * 0.25
    after[0] = 0
    after[0, 0] = 1.2
    writer.put("nextn.pre_projection.weight", before)
    writer.put("nextn.post_projection.weight", after)
    return writer.close()


def _header(
    writer: _Weights, layers: tuple[bool, ...], shared: tuple[int, int], key: tuple[int, int]
) -> None:
    writer.header(len(layers), family="gemma3")
    header, (narrow, wide) = writer.gguf, key
    architecture = header.arch
    header.kv_data[0][f"{architecture}.rope.dimension_count"].value = wide
    header.kv_data[0].pop(f"{architecture}.attention.head_count_kv")
    header.add_head_count_kv([_of(shared, window) for window in layers])
    header.add_rope_dimension_count_swa(narrow)
    header.add_float32(f"{architecture}.rope.freq_base_swa", 1000.0)
    header.add_key_length(wide)
    header.add_value_length(wide)
    header.add_key_length_swa(narrow)
    header.add_value_length_swa(narrow)
    header.add_sliding_window(WINDOW)
    header.add_sliding_window_pattern(list(layers))
    writer.norm("output_norm", writer.width)
    # Half of each head in a layer without a window is not turned.
    writer.put("rope_freqs.weight", np.repeat([1.0, 1e30], wide // 4))


def _layer(writer: _Weights, blk: str, key: int) -> None:
    """All of a layer but its keys and values."""
    width = writer.width
    writer.matrix(f"{blk}.attn_q", HEADS * key, width)
    writer.matrix(f"{blk}.attn_output", width, HEADS * key)
    writer.norm(f"{blk}.attn_q_norm", key)
    writer.norm(f"{blk}.attn_norm", width)
    writer.norm(f"{blk}.ffn_norm", width)
    # Attention changes a row as much as its token does; the other half less, because ggml has a
    # table of GELU in 16-bit floats.
    for name, size in (("post_attention_norm", 3), ("post_ffw_norm", 0.3)):
        weights = size * (1 + writer._random.standard_normal(width) * 0.1)
        writer.put(f"{blk}.{name}.weight", weights)
    writer.matrix(f"{blk}.ffn_gate", NARROW, width)
    writer.matrix(f"{blk}.ffn_up", NARROW, width)
    writer.matrix(f"{blk}.ffn_down", width, NARROW)
    writer.put(f"{blk}.layer_output_scale.weight", np.array([0.9]))


def _of(kinds: tuple[int, int], window: bool) -> int:
    """The number of one kind of layer."""
    return kinds[0 if window else 1]


def _output(writer: _Weights) -> np.ndarray:
    """Some of the LIKELY tokens are likelier than others, for target and assistant alike."""
    values = writer._random.standard_normal((N_VOCAB, writer.width)) * 0.3
    values[:, 0] = -8
    values[list(LIKELY), 0] = 8 + np.linspace(0, _PREFERENCE, len(LIKELY))
    return values
