"""A BERT GGUF computed in numpy with 64-bit floats, independently of llama.cpp."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from fakes.numpy_llama import Floats, Tensors


class NumpyBert:
    """A model as its paper has it: norms behind each sum, positions in a table, GELU."""

    def __init__(self, path: Path) -> None:
        self._tensors = Tensors(path)
        self._heads = int(self._tensors.own("attention.head_count"))
        self._layers = int(self._tensors.own("block_count"))
        self._epsilon = float(self._tensors.own("attention.layer_norm_epsilon"))

    def rows(self, tokens: Sequence[int]) -> Floats:
        """(tokens, width): what the last layer makes of each token of a text."""
        get = self._tensors
        rows = get["token_embd.weight"][list(tokens)] + get["token_types.weight"][0]
        rows = self._norm("token_embd_norm", rows + get["position_embd.weight"][: len(tokens)])
        for layer in range(self._layers):
            blk = f"blk.{layer}"
            rows = self._norm(f"{blk}.attn_output_norm", rows + self._attention(blk, rows))
            inner = _gelu(self._linear(f"{blk}.ffn_up", rows))
            rows = self._norm(
                f"{blk}.layer_output_norm", rows + self._linear(f"{blk}.ffn_down", inner)
            )
        return rows

    def score(self, tokens: Sequence[int]) -> float:
        """What a reranker's head makes of the first row."""
        inner = np.tanh(self._linear("cls", self.rows(tokens)[:1]))
        return float(self._linear("cls.output", inner)[0, 0])

    def _attention(self, blk: str, rows: Floats) -> Floats:
        count = len(rows)
        queries, keys, values = (
            self._linear(f"{blk}.attn_{name}", rows).reshape(count, self._heads, -1).swapaxes(0, 1)
            for name in "qkv"
        )
        weights = np.exp(queries @ keys.swapaxes(1, 2) / np.sqrt(keys.shape[-1]))
        mixed = weights / weights.sum(-1, keepdims=True) @ values
        return self._linear(f"{blk}.attn_output", mixed.swapaxes(0, 1).reshape(count, -1))

    def _linear(self, name: str, rows: Floats) -> Floats:
        product: Floats = rows @ self._tensors[f"{name}.weight"].T
        return product + self._tensors[f"{name}.bias"]

    def _norm(self, name: str, rows: Floats) -> Floats:
        centred = rows - rows.mean(-1, keepdims=True)
        normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + self._epsilon)
        return normed * self._tensors[f"{name}.weight"] + self._tensors[f"{name}.bias"]


def _gelu(rows: Floats) -> Floats:
    inner: Floats = np.tanh(np.sqrt(2 / np.pi) * (rows + 0.044715 * rows**3))
    return rows * (1 + inner) / 2
