"""Medusa heads and MLP speculators with random weights, and their drafts in numpy.

They find the same few tokens likely as the targets of `fakes.eagle3`, so that some of their drafts
are accepted and some are not.
"""

from collections.abc import Sequence
from math import erf, sqrt
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from fakes.eagle3 import LIKELY, WIDTH
from fakes.numpy_llama import Floats, NumpyLlama, Tensors, rms_norm
from fakes.tiny import N_VOCAB

HEADS, BLOCKS, INNER = 8, 2, 32
Type = gguf.GGMLQuantizationType


class _Writer:
    """Writes tensors by name. leave: parts of names of tensors that are left out."""

    def __init__(self, path: Path, architecture: str, kind: str, leave: Sequence[str]) -> None:
        self.gguf = gguf.GGUFWriter(path, architecture)
        self._path, self._kind, self._leave = path, kind, leave

    def matrix(self, name: str, values: Any) -> None:
        self._add(name, np.asarray(values, np.float32), Type[self._kind])

    def vector(self, name: str, values: Any) -> None:
        self._add(name, np.asarray(values, np.float32), Type.F32)

    def _add(self, name: str, values: np.ndarray, kind: Type) -> None:
        if not any(part in name for part in self._leave):
            data = gguf.quants.quantize(values, kind)
            self.gguf.add_tensor(name, data, raw_dtype=kind)

    def close(self, metadata: dict[str, Any], architecture: str, changed: dict[str, Any]) -> Path:
        for key, value in {**metadata, **changed}.items():
            if value is not None:
                kind = gguf.GGUFValueType.get_type(value)
                kind = gguf.GGUFValueType.UINT32 if type(value) is int and value >= 0 else kind
                self.gguf.add_key_value(f"{architecture}.{key}", value, kind)
        self.gguf.write_header_to_file()
        self.gguf.write_kv_data_to_file()
        self.gguf.write_tensors_to_file()
        self.gguf.close()
        return self._path


def output_matrix(rng: np.random.Generator, tokens: int, inner: int) -> np.ndarray:
    values = rng.standard_normal((tokens, inner)) * 0.1
    values[:, 0] = [8 if token in LIKELY else -8 for token in range(tokens)]
    return values


def write_medusa(
    path: Path,
    *,
    heads: int = HEADS,
    blocks: int = BLOCKS,
    width: int = WIDTH,
    tokens: int = N_VOCAB,
    output: str = "own",
    kind: str = "F32",
    leave: Sequence[str] = (),
    seed: int = 3,
    **metadata: Any,
) -> Path:
    """Medusa heads. output: each has its "own", all have "one", or that of the "target"."""
    rng, writer = np.random.default_rng(seed), _Writer(path, "medusa", kind, leave)
    for k in range(heads):
        for i in range(blocks):
            values = rng.standard_normal((width, width)) * 0.1
            values[0] = 0  # the large first number stays
            writer.matrix(f"head.{k}.block.{i}.weight", values)
            writer.vector(f"head.{k}.block.{i}.bias", rng.standard_normal(width) * 0.1)
        if output == "own" or (output == "one" and not k):
            writer.matrix(f"head.{k}.output.weight", output_matrix(rng, tokens, width))
    usual = {
        "head_count": heads,
        "block_count": blocks,
        "embedding_length": width,
        "vocab_size": tokens,
    }
    return writer.close(usual, "medusa", metadata)


def write_mlp(
    path: Path,
    *,
    heads: int = 4,
    width: int = WIDTH,
    inner: int = INNER,
    tokens: int = N_VOCAB,
    tied: bool = False,
    scale_input: bool = True,
    output: str = "own",
    kind: str = "F32",
    leave: Sequence[str] = (),
    seed: int = 4,
    **metadata: Any,
) -> Path:
    """An MLP speculator. tied: stages share their tensors, but for the first projection."""
    architecture = "mlp-speculator"
    rng, writer = np.random.default_rng(seed), _Writer(path, architecture, kind, leave)
    for k in range(heads):
        if not k or not tied:
            embedding = rng.standard_normal((tokens, inner)) * 0.3
            embedding[:, 0] = 0
            writer.matrix(f"head.{k}.token_embd.weight", embedding)
            writer.vector(f"head.{k}.norm.weight", 1 + rng.standard_normal(inner) * 0.1)
            writer.vector(f"head.{k}.norm.bias", rng.standard_normal(inner) * 0.1)
            if output == "own":
                writer.matrix(f"head.{k}.output.weight", output_matrix(rng, tokens, inner))
        if k < 2 or not tied:
            values = rng.standard_normal((inner, inner if k else width)) * 0.3
            values[0] = 0
            values[0, 0] = 2
            writer.matrix(f"head.{k}.proj.weight", values)
    usual = {
        "head_count": heads,
        "embedding_length": width,
        "inner_length": inner,
        "vocab_size": tokens,
        "scale_input": scale_input,
    }
    return writer.close(usual, architecture, metadata)


class _Oracle:
    """Drafts from the row behind the output norm of a whole text but its pending token."""

    def __init__(self, target: Path | NumpyLlama, head: Path) -> None:
        self.target = target if isinstance(target, NumpyLlama) else NumpyLlama(target)
        self.weights = Tensors(head)
        self.heads = int(self.weights.own("head_count"))

    def row(self, text: list[int]) -> Floats:
        """The row of the last token of a text."""
        row: Floats = self.target.normed(text)[-1]
        return row

    def of(self, k: int, part: str) -> Floats:
        """The tensor of a head, or of the nearest one before that has it; else the target's."""
        for number in range(k, -1, -1):
            if f"head.{number}.{part}" in self.weights:
                return self.weights[f"head.{number}.{part}"]
        assert part == "output.weight"
        return self.target.output

    def draft(self, text: list[int], depth: int) -> list[int]:
        """The greedy draft after `text`."""
        drafted: list[int] = []
        for _ in range(min(depth, self.heads)):
            drafted.append(int(self.draft_logits(text, [*drafted, 0])[-1].argmax()))
        return drafted

    def draft_logits(self, text: list[int], drafted: list[int]) -> Floats:
        raise NotImplementedError


class MedusaOracle(_Oracle):
    """x + silu(W x + b) for each block, then the output matrix."""

    def draft_logits(self, text: list[int], drafted: list[int]) -> Floats:
        """The logits that each of these drafted tokens is drawn from."""
        rows = []
        for k in range(len(drafted)):
            x = self.row(text[:-1])
            for i in range(int(self.weights.own("block_count"))):
                y = self.of(k, f"block.{i}.weight") @ x + self.of(k, f"block.{i}.bias")
                x = x + y / (1 + np.exp(-y))
            rows.append(self.of(k, "output.weight") @ x)
        return np.array(rows)


class MlpOracle(_Oracle):
    """The published recipe, written down once more."""

    def draft_logits(self, text: list[int], drafted: list[int]) -> Floats:
        """The logits that each of these drafted tokens is drawn from."""
        x, rows = self.row(text[:-1]), []
        if self.weights.own("scale_input"):
            x = rms_norm(x, np.ones(len(x)), 1e-6) / sqrt(2)
        inner = int(self.weights.own("inner_length"))
        state_weight = 0.5 ** (0.5 / self.heads)
        token_weight = sqrt((1 - state_weight**2) * (inner / 2))
        for k, token in enumerate([text[-1], *drafted][: len(drafted)]):
            z = self.of(k, "token_embd.weight")[token]
            x = self.of(k, "proj.weight") @ x + token_weight / state_weight * z
            x = rms_norm(x, self.of(k, "norm.weight"), 1e-6) + self.of(k, "norm.bias")
            x = 0.5 * x * (1 + np.array([erf(value / sqrt(2)) for value in x]))
            rows.append(self.of(k, "output.weight") @ x)
        return np.array(rows)
