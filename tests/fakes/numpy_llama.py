"""A llama GGUF computed in numpy with 64-bit floats, independently of llama.cpp.

Only what the tiny models of the tests need: no rope scaling, no biases, no experts.
"""

from functools import cached_property
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Tensors:
    """The metadata and the weights of a GGUF; weights are float64, (rows, columns) or (size,)."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self._fields = reader.fields
        self._tensors = {each.name: each for each in reader.tensors}
        self._decoded: dict[str, NDArray[Any]] = {}
        self.architecture = str(self._fields["general.architecture"].contents())

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._decoded:
            found, values = self._tensors[name], self._tensors[name].data
            if values.dtype.kind != "i":  # no table of numbers
                values = gguf.quants.dequantize(values, found.tensor_type).astype(np.float64)
            self._decoded[name] = values
        return self._decoded[name]

    def own(self, key: str, default: Any = None) -> Any:
        """A value of the architecture's own metadata."""
        field = self._fields.get(f"{self.architecture}.{key}")
        return default if field is None else field.contents()


class NumpyLlama:
    """The forward pass of a llama GGUF over whole texts."""

    def __init__(self, path: Path) -> None:
        self.weights = Tensors(path)
        self.layers = int(self.weights.own("block_count"))
        self.eps = float(self.weights.own("attention.layer_norm_rms_epsilon"))

    @cached_property
    def embedding(self) -> Floats:
        """(n_vocab, width)."""
        return self.weights["token_embd.weight"]

    @cached_property
    def output(self) -> Floats:
        """(n_vocab, width); the embedding where the file has none."""
        tied = "output.weight" not in self.weights
        return self.embedding if tied else self.weights["output.weight"]

    def hidden(self, tokens: list[int]) -> list[Floats]:
        """The rows that enter each layer, and those that leave the last: each (n, width)."""
        x = self.embedding[tokens]
        states = [x]
        for layer in range(self.layers):
            blk = f"blk.{layer}"
            normed = rms_norm(x, self.weights[f"{blk}.attn_norm.weight"], self.eps)
            x = x + attention(self.weights, blk, normed)
            normed = rms_norm(x, self.weights[f"{blk}.ffn_norm.weight"], self.eps)
            x = x + feed_forward(self.weights, blk, normed)
            states.append(x)
        return states

    def logits(self, tokens: list[int]) -> Floats:
        """(n, n_vocab), one row after each token."""
        return self.normed(tokens) @ self.output.T

    def normed(self, tokens: list[int]) -> Floats:
        """The rows behind the output norm: (n, width)."""
        last = self.hidden(tokens)[-1]
        return rms_norm(last, self.weights["output_norm.weight"], self.eps)


def rms_norm(x: Floats, weight: Floats, eps: float) -> Floats:
    """Each row divided by the root of its mean square, times the weight."""
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def feed_forward(weights: Tensors, blk: str, x: Floats) -> Floats:
    """SwiGLU."""
    gate = x @ weights[f"{blk}.ffn_gate.weight"].T
    up = x @ weights[f"{blk}.ffn_up.weight"].T
    return (gate / (1 + np.exp(-gate)) * up) @ weights[f"{blk}.ffn_down.weight"].T


def attention(weights: Tensors, blk: str, x: Floats) -> Floats:
    """Causal attention of (n, columns) rows at positions 0 to n - 1."""
    heads = int(weights.own("attention.head_count"))
    shared = int(weights.own("attention.head_count_kv"))
    base = float(weights.own("rope.freq_base", 10000.0))
    query, key, value = (x @ weights[f"{blk}.attn_{name}.weight"].T for name in "qkv")
    n, width = len(x), query.shape[1] // heads
    query = rotated(query.reshape(n, heads, width), base)
    key = rotated(key.reshape(n, shared, width), base)
    value = value.reshape(n, shared, width)
    mixed = np.empty((n, heads, width))
    for head in range(heads):
        kv = head // (heads // shared)
        scores = query[:, head] @ key[:, kv].T / np.sqrt(width)
        scores[np.triu_indices(n, 1)] = -np.inf
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        mixed[:, head] = shares / shares.sum(axis=1, keepdims=True) @ value[:, kv]
    return mixed.reshape(n, -1) @ weights[f"{blk}.attn_output.weight"].T


def rotated(x: Floats, base: float) -> Floats:
    """(n, heads, width) with neighbouring pairs of each head turned by their position."""
    n, _, width = x.shape
    angles = np.arange(n)[:, None] * base ** (-np.arange(0, width, 2) / width)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = np.empty_like(x)
    turned[..., 0::2] = even * cos - odd * sin
    turned[..., 1::2] = even * sin + odd * cos
    return turned
