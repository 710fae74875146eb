"""A tiny target, an EAGLE-3 head for it with random weights, and the head's drafts in numpy.

Both find the same few tokens likely, so that some drafts are accepted and some are not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from fakes import tiny
from fakes.numpy_llama import Floats, NumpyLlama, Tensors, attention, feed_forward, rms_norm
from fakes.tiny import LIKELY, N_VOCAB
from numpy.typing import NDArray

from localspec.speculation.passes import Pass, Scores

WIDTH, LAYERS, HEADS, SHARED, NARROW, CONTEXT = 32, 5, 4, 2, 48, 512
# The layers whose input rows the head reads.
READS = (1, 2, 4)
# Of the tokens that can be generated, those that a head with d2t does not know.
UNKNOWN = (271,)
_LEAN = 3.0


@dataclass(frozen=True)
class HeadShape:
    """How a head is stored.

    d2t: whether it has a vocabulary of its own, part of the target's. own_embedding, own_output:
    whether it has these matrices, or uses the target's. before_residual, before_fc: the metadata
    norm_before_residual and norm_before_fc.
    """

    width: int = 24
    d2t: bool = True
    own_embedding: bool = True
    own_output: bool = True
    before_residual: bool = False
    before_fc: bool = False


# As converters write them: with all matrices; with the target's embedding (EAGLE3-LLaMA3.1-8B);
# with both of the target's; with its norms elsewhere (Red Hat's speculators, NVIDIA's v3).
SHAPES = {
    "own": HeadShape(),
    "whole vocabulary": HeadShape(d2t=False),
    "target's embedding": HeadShape(WIDTH, own_embedding=False),
    "target's matrices": HeadShape(WIDTH, d2t=False, own_embedding=False, own_output=False),
    "other norms": HeadShape(before_residual=True, before_fc=True),
}


class _Weights:
    """Writes random tensors. Rows of embeddings and states have a large first number.

    Outputs give tokens that are not LIKELY far less than others for it.
    """

    def __init__(self, path: Path, architecture: str, width: int, seed: int) -> None:
        self.gguf = gguf.GGUFWriter(path, architecture)
        self.width = width
        self._random = np.random.default_rng(seed)
        self._path = path

    def matrix(self, name: str, rows: int, columns: int, scale: float = 0.25) -> None:
        values = self._random.standard_normal((rows, columns)) * scale
        if rows == self.width:
            values[0] = 0  # the large first number stays
        self.put(f"{name}.weight", values)

    def norm(self, name: str, width: int) -> None:
        self.put(f"{name}.weight", 1 + self._random.standard_normal(width) * 0.1)

    def embedding(self, tokens: int = N_VOCAB) -> None:
        values = self._random.standard_normal((tokens, self.width))
        values[:, 0] = _LEAN
        self.put("token_embd.weight", values)

    def output(self, tokens: list[int], likely: Sequence[int] = LIKELY) -> None:
        values = self._random.standard_normal((len(tokens), self.width)) * 0.5
        values[:, 0] = [8 if token in likely else -8 for token in tokens]
        self.put("output.weight", values)

    def layer(self, blk: str, columns: int) -> None:
        """One layer, whose attention reads rows of `columns` numbers."""
        head = self.width // HEADS
        self.matrix(f"{blk}.attn_q", HEADS * head, columns)
        self.matrix(f"{blk}.attn_k", SHARED * head, columns)
        self.matrix(f"{blk}.attn_v", SHARED * head, columns)
        self.matrix(f"{blk}.attn_output", self.width, HEADS * head)
        self.norm(f"{blk}.attn_norm", self.width)
        self.norm(f"{blk}.ffn_norm", self.width)
        self.matrix(f"{blk}.ffn_gate", NARROW, self.width)
        self.matrix(f"{blk}.ffn_up", NARROW, self.width)
        self.matrix(f"{blk}.ffn_down", self.width, NARROW)

    def put(self, name: str, values: np.ndarray) -> None:
        kind = values.dtype if values.dtype.kind == "i" else np.float32
        self.gguf.add_tensor(name, np.ascontiguousarray(values, kind))

    def header(self, layers: int, tokens: int = N_VOCAB, family: str = "llama") -> None:
        """The metadata that both models have. tokens: of the vocabulary, which is a family's."""
        header = self.gguf
        header.add_context_length(CONTEXT)
        header.add_embedding_length(self.width)
        header.add_feed_forward_length(NARROW)
        header.add_block_count(layers)
        header.add_head_count(HEADS)
        header.add_head_count_kv(SHARED)
        header.add_layer_norm_rms_eps(1e-5)
        header.add_rope_dimension_count(self.width // HEADS)
        header.add_rope_freq_base(10000.0)
        vocabulary = tiny._pieces if family in tiny.PIECES else tiny._byte_pairs
        vocabulary(header)
        if tokens < N_VOCAB:
            for name in ("tokens", "scores", "token_type"):
                found = header.kv_data[0][f"tokenizer.ggml.{name}"]
                found.value = found.value[:tokens]
        header.add_bos_token_id(1)
        header.add_eos_token_id(2)
        header.add_add_bos_token(True)
        header.add_chat_template(tiny.TURNS)

    def close(self) -> Path:
        self.gguf.write_header_to_file()
        self.gguf.write_kv_data_to_file()
        self.gguf.write_tensors_to_file()
        self.gguf.close()
        return self._path


def write_target(
    path: Path, *, seed: int = 0, tokens: int = N_VOCAB, family: str = "llama"
) -> Path:
    """A llama of LAYERS layers, as F32. tokens: of its vocabulary, which is a family's."""
    writer = _Weights(path, "llama", WIDTH, seed)
    writer.header(LAYERS, tokens, family)
    writer.embedding(tokens)
    writer.output(list(range(tokens)))
    writer.norm("output_norm", WIDTH)
    for layer in range(LAYERS):
        writer.layer(f"blk.{layer}", WIDTH)
    return writer.close()


def write_head(
    path: Path,
    shape: HeadShape = SHAPES["own"],
    *,
    reads: tuple[int, ...] = READS,
    seed: int = 1,
    embeddings: int = N_VOCAB,
    family: str = "llama",
    likely: Sequence[int] = LIKELY,
    **metadata: Any,
) -> Path:
    """An EAGLE-3 head for the target, as F32.

    reads: the layers of the target that it reads. embeddings: the rows of its embedding. family: of
    tiny models, whose vocabulary it has. likely: the tokens that it drafts. metadata:
    numbers that replace those of the architecture, such as block_count.
    """
    writer = _Weights(path, "eagle3", shape.width, seed)
    width, fused = shape.width, len(reads) * WIDTH
    writer.header(1, family=family)
    header = writer.gguf
    header.add_array("eagle3.target_layers", list(reads))
    header.add_uint32("eagle3.target_hidden_size", WIDTH)
    header.add_bool("eagle3.norm_before_residual", shape.before_residual)
    header.add_bool("eagle3.norm_before_fc", shape.before_fc)
    for key, value in metadata.items():
        header.kv_data[0].pop(f"eagle3.{key}", None)
        header.add_uint32(f"eagle3.{key}", value)
    fc = np.random.default_rng(seed).standard_normal((width, fused)) * 0.1
    fc[0] = 0
    fc[0, ::WIDTH] = 0.4  # the large first number is handed on
    writer.put("fc.weight", fc)
    if shape.before_fc:
        writer.norm("enc.output_norm", fused)
    tokens = list(range(N_VOCAB))
    if shape.d2t:
        tokens = [token for token in tokens if token % 3 != 2 and token not in UNKNOWN]
        tokens = sorted({*tokens, *LIKELY} - {*UNKNOWN})
        writer.put("d2t", np.array(tokens, np.int64))
    if shape.own_embedding:
        writer.embedding(embeddings)
    if shape.own_output:
        writer.output(tokens, likely)
    writer.norm("output_norm", width)
    writer.layer("blk.0", 2 * width)
    writer.norm("blk.0.attn_norm_2", width)
    return writer.close()


class Eagle3Oracle:
    """The drafts of an EAGLE-3 head, from the numpy forward of its target and its own."""

    def __init__(self, target: Path | NumpyLlama, head: Path) -> None:
        self.target = target if isinstance(target, NumpyLlama) else NumpyLlama(target)
        self.weights = Tensors(head)
        self.reads = [int(layer) for layer in self.weights.own("target_layers")]
        self._eps = float(self.weights.own("attention.layer_norm_rms_epsilon"))
        self._embedding = self._own_or("token_embd.weight", self.target.embedding)
        self._output = self._own_or("output.weight", self.target.output)

    def features(self, tokens: list[int]) -> Floats:
        """The target's hidden rows side by side: (n, layers read x width)."""
        states = self.target.hidden(tokens)
        return np.hstack([states[layer] for layer in self.reads])

    def encoded(self, tokens: list[int]) -> Floats:
        """What the head's encoder makes of the hidden rows: (n, head's width)."""
        return self.fused(self.features(tokens))

    def fused(self, features: NDArray[Any]) -> Floats:
        """The encoder, of (n, layers read x width) features: (n, head's width)."""
        if self.weights.own("norm_before_fc"):
            features = rms_norm(features, self.weights["enc.output_norm.weight"], self._eps)
        return features @ self.weights["fc.weight"].T

    def decoded(self, tokens: list[int], states: Floats) -> tuple[Floats, Floats]:
        """The head's decoder over (token, state) pairs; (n, n_vocab) logits, (n, width) states."""
        normed = self._normed(states, "blk.0.attn_norm_2")
        pairs = np.hstack([self._normed(self._embedding[tokens], "blk.0.attn_norm"), normed])
        x = normed if self.weights.own("norm_before_residual") else states
        x = x + attention(self.weights, "blk.0", pairs)
        x = x + feed_forward(self.weights, "blk.0", self._normed(x, "blk.0.ffn_norm"))
        known = self._normed(x, "output_norm") @ self._output.T
        if "d2t" not in self.weights:
            return known, x
        logits = np.full((len(x), len(self._embedding)), -np.inf)
        logits[:, self.weights["d2t"]] = known
        return logits, x

    def draft_logits(self, text: list[int], drafted: list[int]) -> Floats:
        """The logits that each of these drafted tokens is drawn from; (len(drafted), n_vocab).

        text: the committed tokens, the last of which is pending: the target's hidden rows are of
        the tokens before it.
        """
        tokens, states = list(text[1:]), self.encoded(text[:-1])
        rows = []
        for token in drafted:
            logits, own = self.decoded(tokens, states)
            rows.append(logits[-1])
            tokens, states = [*tokens, token], np.vstack([states, own[-1:]])
        return np.array(rows)

    def draft(self, text: list[int], depth: int) -> list[int]:
        """The greedy draft after `text`."""
        drafted: list[int] = []
        for _ in range(depth):
            drafted.append(int(self.draft_logits(text, [*drafted, 0])[-1].argmax()))
        return drafted

    def _own_or(self, name: str, targets: Floats) -> Floats:
        """A matrix of the head, or the target's where the head has none."""
        if name not in self.weights:
            return targets
        return self.weights[name]

    def _normed(self, x: Floats, name: str) -> Floats:
        return rms_norm(x, self.weights[f"{name}.weight"], self._eps)


class NumpyHeadCache:
    """The head's KV cache in numpy: it computes the pairs that it is given, whatever they are.

    passes: the number of decodes and encodes. wanted: the rows whose logits were asked for.
    """

    def __init__(self, oracle: Eagle3Oracle, *, chunk: int = 64, n_ctx: int = CONTEXT) -> None:
        self.n_vocab, self.n_ctx, self.chunk = N_VOCAB, n_ctx, chunk
        self.tokens: list[int] = []
        self.passes = self.wanted = 0
        self._oracle = oracle
        self._states: list[Floats] = []

    @property
    def context(self) -> "NumpyHeadCache":
        return self

    def truncate(self, length: int) -> int:
        del self.tokens[length:], self._states[length:]
        return len(self.tokens)

    def decode(self, passes: Sequence[Pass]) -> list[Scores]:
        (one,) = passes
        assert one.sequence is self
        assert one.embeddings is not None
        assert 0 < len(one.embeddings) <= self.chunk
        self.passes += 1
        self.wanted += one.wanted
        if one.encode:
            assert not one.tokens
            return [_scores(np.empty((0, N_VOCAB)), self._oracle.fused(one.embeddings))]
        assert len(one.tokens) == len(one.embeddings)
        self.tokens += one.tokens
        assert len(self.tokens) <= self.n_ctx
        self._states += list(one.embeddings)
        logits, states = self._oracle.decoded(self.tokens, np.array(self._states))
        rows = len(one.tokens)
        return [_scores(logits[len(logits) - one.wanted :], states[-rows:])]


def _scores(logits: Floats, own: Floats) -> Scores:
    return Scores(logits.astype(np.float32), hidden={1: own.astype(np.float32)})
