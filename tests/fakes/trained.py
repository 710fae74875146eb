"""Models and heads as training makes them: random weights, and what they compute, in numpy."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.training.bundled_pair.chat_tokens import BEGIN, END, TURN
from localspec.training.bundled_pair.gguf_export import export
from localspec.training.sizes import EPSILON, ROPE_BASE, Sizes
from localspec.training.tensor_layouts import DFLASH_LAYERS, MEDUSA_BLOCKS, MEDUSA_HEADS

Rows = NDArray[np.float64]
Weights = Mapping[str, NDArray[np.float32]]

SIZES = Sizes(vocabulary=96, width=64, layers=5, heads=2, feed_forward=96)
READS = (1, 2, 4)
WIDTH, INNER = SIZES.width, SIZES.feed_forward
LAYER = {
    "output": (WIDTH, WIDTH),
    "feed_norm": (WIDTH,),
    "gate_up": (2 * INNER, WIDTH),
    "down": (WIDTH, INNER),
}
BLOCK = {"attention_norm": (WIDTH,), "qkv": (3 * WIDTH, WIDTH), **LAYER}
EAGLE3 = {
    "fc": (WIDTH, 3 * WIDTH),
    "token_norm": (WIDTH,),
    "state_norm": (WIDTH,),
    "qkv": (3 * WIDTH, 2 * WIDTH),
    "norm": (WIDTH,),
    **LAYER,
}

DFLASH_LAYER = {**BLOCK, "query_norm": (SIZES.head,), "key_norm": (SIZES.head,)}
DFLASH = {
    "fc": (WIDTH, 3 * WIDTH),
    "text_norm": (WIDTH,),
    "norm": (WIDTH,),
    **{
        f"layers.{layer}.{name}": shape
        for layer in range(DFLASH_LAYERS)
        for name, shape in DFLASH_LAYER.items()
    },
}
MEDUSA = {
    f"heads.{head}.{block}": (WIDTH, WIDTH)
    for head in range(MEDUSA_HEADS)
    for block in range(MEDUSA_BLOCKS)
}


def random_weights(shapes: dict[str, tuple[int, ...]], seed: int) -> Weights:
    """Weights of these names and shapes; those of Medusa's blocks have biases too."""
    rng = np.random.default_rng(seed)
    biases = {
        f"{name}.bias": (rng.standard_normal(shape[0]) * 0.2).astype(np.float32)
        for name, shape in shapes.items()
        if name in MEDUSA
    }
    return biases | {
        f"{name}.weight": (
            rng.standard_normal(shape) * 0.2 if len(shape) > 1 else rng.uniform(0.5, 2, shape)
        ).astype(np.float32)
        for name, shape in shapes.items()
    }


def write_trained_target(path: Path, tokenizer: Path, **sizes: int) -> Path:
    """A target of SIZES, with other `sizes` where they are given."""
    shape = replace(SIZES, **sizes)
    width, inner = shape.width, shape.feed_forward
    shapes: dict[str, tuple[int, ...]] = {"embedding": (shape.vocabulary, width), "norm": (width,)}
    block = {**BLOCK, "gate_up": (2 * inner, width), "down": (width, inner)}
    for number in range(shape.layers):
        shapes |= {f"blocks.{number}.{name}": each for name, each in block.items()}
    export(shape, random_weights(shapes, 1), tokenizer, path, type_="q8_0", name=path.stem)
    return path


def normed(rows: Rows, weight: NDArray[np.float32]) -> Rows:
    return rows / np.sqrt((rows * rows).mean(-1, keepdims=True) + EPSILON) * weight


def turned(rows: Rows, start: int = 0) -> Rows:
    """RoPE as it is trained: the two halves of a head turn together. rows: (length, size)."""
    length, size = rows.shape
    angles = np.outer(
        np.arange(start, start + length), ROPE_BASE ** -(np.arange(0, size, 2) / size)
    )
    first, second = rows[:, : size // 2], rows[:, size // 2 :]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cos - second * sin, first * sin + second * cos], 1)


def mixed(qkv: Rows, heads: int) -> Rows:
    """Causal attention. qkv: (length, 3 x width)."""
    q, k, v = np.split(qkv, 3, 1)
    later = np.triu(np.full((len(q), len(q)), -np.inf), 1)
    return attention(q, k, v, heads=heads, hidden=later)


def attention(
    q: Rows, k: Rows, v: Rows, *, heads: int, hidden: Rows, norms: Weights | None = None
) -> Rows:
    """Attention of the last rows over all. hidden: -inf where a row does not see another.

    norms: query_norm and key_norm, if there are such.
    """
    size, parts = q.shape[1] // heads, []
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        query, key = q[:, own], k[:, own]
        if norms:
            query, key = normed(query, norms["query_norm"]), normed(key, norms["key_norm"])
        scores = turned(query, len(k) - len(q)) @ turned(key).T / np.sqrt(size)
        shares = np.exp(scores + hidden)
        parts.append(shares / shares.sum(1, keepdims=True) @ v[:, own])
    return np.concatenate(parts, 1)


def stepped(rows: Rows, part: Weights) -> Rows:
    """The feed-forward part of a layer: its weights feed_norm, gate_up and down."""
    gate, up = np.split(normed(rows, part["feed_norm"]) @ part["gate_up"].T, 2, 1)
    return rows + (gate / (1 + np.exp(-gate)) * up) @ part["down"].T


def write_tokenizer(path: Path, vocabulary: int) -> Path:
    words = [BEGIN, TURN, END, *(chr(33 + number) for number in range(vocabulary - 3))]
    bpe = {
        "model": {
            "vocab": {word: number for number, word in enumerate(words)},
            "merges": [["!", "!"]],
        }
    }
    path.write_text(json.dumps(bpe), encoding="utf-8")
    return path
