"""A gemma4 GGUF and its assistant computed in numpy with 64-bit floats, independently of llama.cpp.

Only what the tiny models of the tests need: no experts, no embeddings of layers.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from fakes.numpy_llama import Floats, Tensors, rms_norm

from localspec.utils.media import MediaToken

# Rows by layer, each (n, width); keys and values by layer, each (n, key-value heads, width).
Forward = tuple[list[Floats], dict[int, tuple[Floats, ...]]]


class _Layers:
    """What a target and its assistant have in common."""

    def __init__(self, path: Path) -> None:
        self.weights = Tensors(path)
        self.layers = int(self.weights.own("block_count"))
        self.windows = [bool(each) for each in self.weights.own("attention.sliding_window_pattern")]
        self.heads = int(self.weights.own("attention.head_count"))
        self._eps = float(self.weights.own("attention.layer_norm_rms_epsilon"))

    def weight(self, name: str) -> Floats:
        return self.weights[f"{name}.weight"]

    def normed(self, x: Floats, name: str) -> Floats:
        return rms_norm(x, self.weight(name), self._eps)

    def turned(self, x: Floats, layer: int, positions: Floats) -> Floats:
        """(n, heads, width) with the halves of each head turned by their position."""
        width, window = x.shape[-1], self.windows[layer]
        base = float(self.weights.own("rope.freq_base_swa" if window else "rope.freq_base"))
        factors = 1.0 if window else self.weight("rope_freqs")
        angles = positions[:, None] * base ** (-np.arange(0, width, 2) / width) / factors
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        first, second = np.split(x, 2, axis=-1)
        return np.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)

    def after_attention(self, x: Floats, mixed: Floats, layer: int) -> Floats:
        """The rows that leave a layer. mixed: values by the shares of attention, (n, heads * m)."""
        blk = f"blk.{layer}"
        found = mixed @ self.weight(f"{blk}.attn_output").T
        x = x + self.normed(found, f"{blk}.post_attention_norm")
        inside = self.normed(x, f"{blk}.ffn_norm")
        gated = _gelu(inside @ self.weight(f"{blk}.ffn_gate").T)
        found = (gated * (inside @ self.weight(f"{blk}.ffn_up").T)) @ self.weight(
            f"{blk}.ffn_down"
        ).T
        x = x + self.normed(found, f"{blk}.post_ffw_norm")
        return x * self.weight(f"{blk}.layer_output_scale")

    def queries(self, x: Floats, layer: int, positions: Floats) -> Floats:
        """(n, heads, width)."""
        blk = f"blk.{layer}"
        found = self.normed(x, f"{blk}.attn_norm") @ self.weight(f"{blk}.attn_q").T
        found = found.reshape(len(x), self.heads, -1)
        return self.turned(self.normed(found, f"{blk}.attn_q_norm"), layer, positions)


class NumpyGemma4(_Layers):
    """The forward pass of a gemma4 GGUF over whole texts."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._known: dict[tuple[int, ...], Forward] = {}

    def forward(self, tokens: Sequence[int]) -> Forward:
        """The rows that enter each layer and those behind the output norm, and keys and values."""
        key = tuple(tokens)
        if key not in self._known:
            self._known = dict([*self._known.items()][-8:]) | {key: self._forward(key)}
        return self._known[key]

    def _forward(self, tokens: tuple[int, ...]) -> Forward:
        positions = np.arange(len(tokens), dtype=float)
        x = self._embedded(tokens)
        states, cached = [x], {}
        distance = positions[:, None] - positions
        window = int(self.weights.own("attention.sliding_window"))
        own = self.layers - int(self.weights.own("attention.shared_kv_layers", 0))
        for layer in range(self.layers):
            if layer < own:
                cached[layer] = self._keys_and_values(x, layer, positions)
            else:
                cached[layer] = cached[own - (2 if self.windows[layer] else 1)]
            hidden = (distance < 0) | (self.windows[layer] & (distance >= window))
            mixed = attention(self.queries(x, layer, positions), *cached[layer], hidden)
            x = self.after_attention(x, mixed, layer)
            states.append(x)
        states[-1] = self.normed(x, "output_norm")
        return states, cached

    def _embedded(self, tokens: Sequence[int]) -> Floats:
        """The rows of images are their own."""
        embedding = self.weights["token_embd.weight"]
        scale = np.sqrt(embedding.shape[1])
        return np.array(
            [
                token.media.rows()[token.place]
                if isinstance(token, MediaToken)
                else embedding[token] * scale
                for token in tokens
            ],
            dtype=float,
        )

    def hidden(self, tokens: list[int]) -> list[Floats]:
        """The rows that enter each layer, and those behind the output norm: each (n, width)."""
        return self.forward(tokens)[0]

    def logits(self, tokens: list[int]) -> Floats:
        """(n, n_vocab), one row after each token."""
        cap = float(self.weights.own("final_logit_softcapping"))
        found = self.hidden(tokens)[-1] @ self.weights["output.weight"].T
        return cap * np.tanh(found / cap)

    def _keys_and_values(self, x: Floats, layer: int, positions: Floats) -> tuple[Floats, Floats]:
        """Values are normed without a weight; each (n, key-value heads, width)."""
        blk = f"blk.{layer}"
        shared = int(self.weights.own("attention.head_count_kv")[layer])
        inside = self.normed(x, f"{blk}.attn_norm")
        key, value = (
            (inside @ self.weight(f"{blk}.attn_{name}").T).reshape(len(x), shared, -1)
            for name in "kv"
        )
        key = self.turned(self.normed(key, f"{blk}.attn_k_norm"), layer, positions)
        return key, rms_norm(value, np.ones(value.shape[-1]), self._eps)


class AssistantOracle(_Layers):
    """An assistant in numpy; the target's cache is that of a forward pass over the whole text."""

    def __init__(self, target: Path, path: Path) -> None:
        super().__init__(path)
        self.target = NumpyGemma4(target)
        self._window = int(self.weights.own("attention.sliding_window"))

    def draft_logits(self, text: Sequence[int], drafted: Sequence[int]) -> Floats:
        """The logits that each of these drafted tokens is drawn from; (len(drafted), n_vocab).

        text: the committed tokens, the last of which is pending.
        """
        states, cached = self.target.forward(text[:-1])
        row, found = states[-1][-1:], []
        for token in [text[-1], *drafted[:-1]]:
            logits, row = self.decoded(token, row, cached, len(text) - 1)
            found.append(logits[0])
        return np.array(found)

    def decoded(
        self, token: int, row: Floats, cached: dict[int, tuple[Floats, ...]], position: int
    ) -> tuple[Floats, Floats]:
        """The logits and the own row after one token at a position, each (1, n)."""
        embedding = self.target.weights["token_embd.weight"]
        inside = np.hstack([embedding[[token]] * np.sqrt(embedding.shape[1]), row])
        x = inside @ self.weight("nextn.pre_projection").T
        place = np.array([float(position)])
        for layer in range(self.layers):
            window = self.windows[layer]
            key, value = cached[self.target.layers - (2 if window else 1)]
            hidden = (place[:, None] - np.arange(len(key)) >= self._window) & window
            mixed = attention(self.queries(x, layer, place), key, value, hidden)
            x = self.after_attention(x, mixed, layer)
        x = self.normed(x, "output_norm")
        return x @ self.weights["token_embd.weight"].T, x @ self.weight("nextn.post_projection").T

    def draft(self, text: list[int], depth: int) -> list[int]:
        """The greedy draft after `text`."""
        drafted: list[int] = []
        for _ in range(depth):
            drafted.append(int(self.draft_logits(text, [*drafted, 0])[-1].argmax()))
        return drafted


def attention(query: Floats, key: Floats, value: Floats, hidden: Floats) -> Floats:
    """Unscaled attention, (n, heads * width). hidden: which places each row does not see."""
    n, heads, width = query.shape
    group = heads // key.shape[1]
    mixed = np.empty((n, heads, width))
    for head in range(heads):
        scores = query[:, head] @ key[:, head // group].T
        scores[hidden] = -np.inf
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        mixed[:, head] = shares / shares.sum(axis=1, keepdims=True) @ value[:, head // group]
    return mixed.reshape(n, -1)


def _gelu(x: Floats) -> Floats:
    """As ggml has it on a CPU: from a table of 16-bit floats."""
    x = x.astype(np.float16).astype(np.float64)
    inner = np.sqrt(2 / np.pi) * x * (1 + 0.044715 * x * x)
    return (0.5 * x * (1 + np.tanh(inner))).astype(np.float16).astype(np.float64)
