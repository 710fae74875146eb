"""Tiny targets with heads of multi-token prediction, in one file or two, and the head in numpy.

The target is a hybrid (qwen35) of one layer with a running state and one of attention. Target and
head find the same few tokens likely, so that some drafts are accepted and some are not.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from fakes.eagle3 import CONTEXT, HEADS, LIKELY, NARROW, SHARED, WIDTH, _Weights
from fakes.numpy_llama import Floats, NumpyLlama, Tensors, feed_forward, rms_norm
from fakes.tiny import N_VOCAB

from localspec.speculation.passes import Pass, Scores

# The layers that compute the target's own tokens; its last rows enter the layer of this number.
TRUNK = 2
# The sliding window of chained heads, in tokens.
WINDOW = 24
HEAD = WIDTH // HEADS
_STATE, _VALUES, _GROUPS, _KERNEL = 8, 4, 2, 4
# How much of a first number the head takes from the token, and how much from the row.
_HANDED_ON = 1.2
_PREFERENCE = 1.0


def write_target(path: Path, *, heads: int = 1, seed: int = 0, width: int = WIDTH) -> Path:
    """A qwen35 as F32 with so many heads inside."""
    writer = _hybrid(path, heads, seed, width)
    writer.norm("output_norm", width)
    for layer in range(TRUNK):
        _feed_forward(writer, f"blk.{layer}")
    _running_state(writer, "blk.0")
    _gated_attention(writer, "blk.1")
    for head in range(heads):
        _head(writer, TRUNK + head, seed + 1)
    return writer.close()


def write_sidecar(path: Path, *, seed: int = 0, width: int = WIDTH, trunk: int = TRUNK) -> Path:
    """The head that `write_target` puts into the target, in a file of its own."""
    writer = _hybrid(path, 1, seed, width, trunk)
    writer.norm("output_norm", width)
    _head(writer, trunk, seed + 1)
    return writer.close()


def _hybrid(path: Path, heads: int, seed: int, width: int, trunk: int = TRUNK) -> _Weights:
    """The header, the embedding and the output, which both files have."""
    writer = _Weights(path, "qwen35", width, seed)
    writer.header(trunk + heads, family="qwen35")
    header = writer.gguf
    if heads:
        header.add_uint32("qwen35.nextn_predict_layers", heads)
    header.add_full_attention_interval(TRUNK)
    header.kv_data[0]["qwen35.rope.dimension_count"].value = HEAD
    header.add_key_length(HEAD)
    header.add_value_length(HEAD)
    header.add_rope_dimension_sections([2, 1, 1, 0])
    header.add_ssm_conv_kernel(_KERNEL)
    header.add_ssm_inner_size(_VALUES * _STATE)
    header.add_ssm_state_size(_STATE)
    header.add_ssm_time_step_rank(_VALUES)
    header.add_ssm_group_count(_GROUPS)
    writer.embedding()
    _output(writer)
    return writer


def _output(writer: _Weights) -> None:
    """Some of the LIKELY tokens are likelier than others, for target and head alike."""
    values = writer._random.standard_normal((N_VOCAB, writer.width)) * 0.2
    values[:, 0] = -8
    values[list(LIKELY), 0] = 8 + np.linspace(0, _PREFERENCE, len(LIKELY))
    writer.put("output.weight", values)


def _feed_forward(writer: _Weights, blk: str) -> None:
    writer.norm(f"{blk}.attn_norm", writer.width)
    writer.norm(f"{blk}.post_attention_norm", writer.width)
    writer.matrix(f"{blk}.ffn_gate", NARROW, writer.width)
    writer.matrix(f"{blk}.ffn_up", NARROW, writer.width)
    writer.matrix(f"{blk}.ffn_down", writer.width, NARROW)


def _gated_attention(writer: _Weights, blk: str) -> None:
    """With each query comes a gate of its size."""
    writer.matrix(f"{blk}.attn_q", 2 * HEADS * HEAD, writer.width)
    writer.matrix(f"{blk}.attn_k", SHARED * HEAD, writer.width)
    writer.matrix(f"{blk}.attn_v", SHARED * HEAD, writer.width)
    writer.matrix(f"{blk}.attn_output", writer.width, HEADS * HEAD)
    writer.norm(f"{blk}.attn_q_norm", HEAD)
    writer.norm(f"{blk}.attn_k_norm", HEAD)


def _running_state(writer: _Weights, blk: str) -> None:
    inner, channels = _VALUES * _STATE, (_VALUES + 2 * _GROUPS) * _STATE
    writer.matrix(f"{blk}.attn_qkv", channels, writer.width)
    writer.matrix(f"{blk}.attn_gate", inner, writer.width)
    writer.matrix(f"{blk}.ssm_conv1d", channels, _KERNEL)
    writer.put(f"{blk}.ssm_dt.bias", np.ones(_VALUES))
    writer.put(f"{blk}.ssm_a", np.full(_VALUES, -0.1))
    writer.matrix(f"{blk}.ssm_beta", _VALUES, writer.width)
    writer.matrix(f"{blk}.ssm_alpha", _VALUES, writer.width)
    writer.norm(f"{blk}.ssm_norm", _STATE)
    writer.matrix(f"{blk}.ssm_out", writer.width, inner)


def _head(writer: _Weights, layer: int, seed: int) -> None:
    """The layer of a head, whatever else the file holds."""
    writer._random = np.random.default_rng((seed, layer))
    blk = f"blk.{layer}"
    _feed_forward(writer, blk)
    _gated_attention(writer, blk)
    _joined(writer, blk)


def _joined(writer: _Weights, blk: str) -> None:
    """What joins a token and a row to a pair, and the norms of a head."""
    width = writer.width
    joined = writer._random.standard_normal((width, 2 * width)) * 0.25
    joined[0] = 0
    joined[0, [0, width]] = _HANDED_ON  # the large first number is handed on
    writer.put(f"{blk}.nextn.eh_proj.weight", joined)
    for name in ("enorm", "hnorm", "shared_head_norm"):
        writer.norm(f"{blk}.nextn.{name}", width)


class MtpOracle:
    """A qwen35 head in numpy, which is given the target's rows.

    path: of the file with the head.
    """

    def __init__(self, path: Path, *, trunk: int = TRUNK) -> None:
        self.weights = Tensors(path)
        self.width = int(self.weights.own("embedding_length"))
        self._eps = float(self.weights.own("attention.layer_norm_rms_epsilon"))
        self._blk = f"blk.{trunk}"

    def decoded(self, tokens: Sequence[int], rows: Floats) -> tuple[Floats, Floats]:
        """The head over (token, row) pairs from position 0 on: (n, n_vocab) logits, (n, width)."""
        pairs = np.hstack(
            [
                self._normed(self.weights["token_embd.weight"][list(tokens)], "nextn.enorm"),
                self._normed(rows, "nextn.hnorm"),
            ]
        )
        x = pairs @ self._weight("nextn.eh_proj").T
        x = x + self._attention(self._normed(x, "attn_norm"))
        x = x + feed_forward(self.weights, self._blk, self._normed(x, "post_attention_norm"))
        own = self._normed(x, "nextn.shared_head_norm")
        return own @ self.weights["output.weight"].T, own

    def draft_logits(self, text: Sequence[int], rows: Floats, drafted: Sequence[int]) -> Floats:
        """The logits that each of these drafted tokens is drawn from; (len(drafted), n_vocab).

        text: the committed tokens, the last of which is pending. rows: the target's, of the tokens
        before it.
        """
        tokens, before, found = list(text), np.vstack([np.zeros(self.width), *rows]), []
        for token in drafted:
            logits, own = self.decoded(tokens, before)
            found.append(logits[-1])
            tokens, before = [*tokens, token], np.vstack([before, own[-1]])
        return np.array(found)

    def draft(self, text: Sequence[int], rows: Floats, depth: int) -> list[int]:
        """The greedy draft after `text`."""
        drafted: list[int] = []
        for _ in range(depth):
            logits = self.draft_logits(text, rows, [*drafted, 0])
            drafted.append(int(logits[-1].argmax()))
        return drafted

    def _attention(self, x: Floats) -> Floats:
        """Causal attention whose result passes a gate."""
        n = len(x)
        both = (x @ self._weight("attn_q").T).reshape(n, HEADS, 2, HEAD)
        key = (x @ self._weight("attn_k").T).reshape(n, SHARED, HEAD)
        value = (x @ self._weight("attn_v").T).reshape(n, SHARED, HEAD)
        query = _turned(self._normed(both[:, :, 0], "attn_q_norm"))
        key = _turned(self._normed(key, "attn_k_norm"))
        mixed = np.empty((n, HEADS, HEAD))
        for head in range(HEADS):
            kv = head // (HEADS // SHARED)
            scores = query[:, head] @ key[:, kv].T / np.sqrt(HEAD)
            scores[np.triu_indices(n, 1)] = -np.inf
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            mixed[:, head] = shares / shares.sum(axis=1, keepdims=True) @ value[:, kv]
        mixed *= 1 / (1 + np.exp(-both[:, :, 1]))
        return mixed.reshape(n, -1) @ self._weight("attn_output").T

    def _weight(self, name: str) -> Floats:
        return self.weights[f"{self._blk}.{name}.weight"]

    def _normed(self, x: Floats, name: str) -> Floats:
        return rms_norm(x, self._weight(name), self._eps)


def _turned(x: Floats, base: float = 10000.0) -> Floats:
    """(n, heads, width) with the halves of each head turned by their position."""
    n, _, width = x.shape
    angles = np.arange(n)[:, None] * base ** (-np.arange(0, width, 2) / width)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


def write_chain(path: Path, *, heads: int = 3, seed: int = 0) -> Path:
    """A step35 of two dense layers as F32, with several heads inside, which are chained.

    Layers and heads, but the first layer, have a sliding window of WINDOW tokens.
    """
    writer = _Weights(path, "step35", WIDTH, seed)
    writer.header(TRUNK + heads, family="qwen35")
    header = writer.gguf
    header.add_uint32("step35.nextn_predict_layers", heads)
    header.add_key_length(HEAD)
    header.add_value_length(HEAD)
    header.add_expert_feed_forward_length(NARROW)
    header.add_sliding_window(WINDOW)
    header.add_sliding_window_pattern([False, *[True] * (TRUNK - 1 + heads)])
    header.add_float32("step35.rope.freq_base_swa", 10000.0)
    writer.embedding()
    _output(writer)
    writer.norm("output_norm", WIDTH)
    for layer in range(TRUNK + heads):
        writer._random = np.random.default_rng((seed, layer))
        blk = f"blk.{layer}"
        writer.layer(blk, WIDTH)
        if layer >= TRUNK:
            _joined(writer, blk)
    return writer.close()


class ChainOracle:
    """The heads of a step35 in numpy, which are given the target's rows."""

    def __init__(self, path: Path) -> None:
        self.weights = Tensors(path)
        self.count = int(self.weights.own("nextn_predict_layers"))
        self._eps = float(self.weights.own("attention.layer_norm_rms_epsilon"))

    def draft_logits(self, text: Sequence[int], rows: Floats, drafted: Sequence[int]) -> Floats:
        """As `MtpOracle.draft_logits`; each token is drawn by a head of its own."""
        tokens, before, found = list(text), np.vstack([np.zeros(WIDTH), *rows]), []
        for head, token in enumerate(drafted):
            logits, own = self.decoded(head, tokens, before)
            found.append(logits)
            tokens, before = [*tokens, token], np.vstack([before, own])
        return np.array(found)

    def decoded(self, head: int, tokens: list[int], rows: Floats) -> tuple[Floats, Floats]:
        """The last logits and the last row of a head over (token, row) pairs."""
        blk = f"blk.{TRUNK + head}"
        normed = [
            rms_norm(each, self.weights[f"{blk}.nextn.{name}.weight"], self._eps)
            for each, name in (
                (self.weights["token_embd.weight"][tokens], "enorm"),
                (rows, "hnorm"),
            )
        ]
        x = np.hstack(normed) @ self.weights[f"{blk}.nextn.eh_proj.weight"].T
        inside = rms_norm(x, self.weights[f"{blk}.attn_norm.weight"], self._eps)
        x = x + self._attention(blk, inside)
        inside = rms_norm(x, self.weights[f"{blk}.ffn_norm.weight"], self._eps)
        x = (x + feed_forward(self.weights, blk, inside))[-1]
        own = rms_norm(x, self.weights[f"{blk}.nextn.shared_head_norm.weight"], self._eps)
        return self.weights["output.weight"] @ own, x

    def _attention(self, blk: str, x: Floats) -> Floats:
        n = len(x)
        query, key, value = (
            (x @ self.weights[f"{blk}.attn_{name}.weight"].T).reshape(n, -1, HEAD) for name in "qkv"
        )
        query, key = _turned(query), _turned(key)
        mixed = np.empty((n, HEADS, HEAD))
        distance = np.arange(n)[:, None] - np.arange(n)
        for head in range(HEADS):
            kv = head // (HEADS // SHARED)
            scores = query[:, head] @ key[:, kv].T / np.sqrt(HEAD)
            scores[(distance < 0) | (distance >= WINDOW)] = -np.inf
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            mixed[:, head] = shares / shares.sum(axis=1, keepdims=True) @ value[:, kv]
        return mixed.reshape(n, -1) @ self.weights[f"{blk}.attn_output.weight"].T


class NumpyHeadCache:
    """The head's KV cache in numpy: it computes the pairs that it is given, whatever they are.

    rows: the rows of the pairs. passes: the number of decodes. wanted: the rows whose logits were
    asked for.
    """

    def __init__(self, oracle: MtpOracle, *, chunk: int = 64, n_ctx: int = CONTEXT) -> None:
        self.n_vocab, self.n_ctx, self.chunk = N_VOCAB, n_ctx, chunk
        self.tokens: list[int] = []
        self.rows: list[Floats] = []
        self.passes = self.wanted = 0
        self._oracle = oracle

    @property
    def context(self) -> "NumpyHeadCache":
        return self

    def truncate(self, length: int) -> int:
        del self.tokens[length:], self.rows[length:]
        return len(self.tokens)

    def lose(self) -> None:
        """The device has failed: nothing is left."""
        del self.tokens[:], self.rows[:]

    def decode(self, passes: Sequence[Pass]) -> list[Scores]:
        one, embeddings = self._counted(passes)
        self.rows += list(embeddings)
        logits, own = self._oracle.decoded(self.tokens, np.array(self.rows))
        found = logits[len(logits) - one.wanted :].astype(np.float32)
        return [Scores(found, hidden={TRUNK: own[-len(one.tokens) :].astype(np.float32)})]

    def _counted(self, passes: Sequence[Pass]) -> tuple[Pass, Floats]:
        """The one pass, whose tokens are in the cache now, and its rows."""
        (one,) = passes
        assert one.sequence is self
        assert one.embeddings is not None
        assert 0 < len(one.embeddings) == len(one.tokens) <= self.chunk
        self.passes += 1
        self.wanted += one.wanted
        self.tokens += one.tokens
        assert len(self.tokens) <= self.n_ctx
        return one, one.embeddings


class NumpyChainCache(NumpyHeadCache):
    """The KV cache of chained heads: of a cell, each head reads what it has written there itself.

    Cells that are cut off hold that until it is written anew.
    """

    def __init__(self, oracle: ChainOracle, **sizes: int) -> None:
        super().__init__(oracle, **sizes)  # type: ignore[arg-type]
        self._chain = oracle
        self._cells: list[dict[int, tuple[int, Floats]]] = [{} for _ in range(oracle.count)]

    def lose(self) -> None:
        super().lose()
        for cells in self._cells:
            cells.clear()

    def decode(self, passes: Sequence[Pass]) -> list[Scores]:
        one, embeddings = self._counted(passes)
        cells = self._cells[one.layer_offset]
        pairs = zip(one.tokens, embeddings, strict=True)
        cells.update(enumerate(pairs, start=len(self.tokens) - len(one.tokens)))
        unwritten = (0, np.zeros(WIDTH))
        held = [cells.get(place, unwritten) for place in range(len(self.tokens))]
        tokens, rows = zip(*held, strict=True)
        logits, last = self._chain.decoded(one.layer_offset, list(tokens), np.array(rows))
        own = np.full((len(one.tokens), WIDTH), np.nan, np.float32)
        own[-1] = last
        return [Scores(logits[None, :].astype(np.float32)[: one.wanted], hidden={TRUNK: own})]


class OfRows:
    """The drafts of an oracle that is given a target's rows. rows: computes them."""

    def __init__(self, oracle: MtpOracle | ChainOracle, rows: NumpyLlama) -> None:
        self._oracle, self._rows = oracle, rows

    def draft_logits(self, text: list[int], drafted: list[int]) -> Floats:
        """The logits that each of these drafted tokens is drawn from; (len(drafted), n_vocab)."""
        rows = self._rows.hidden(text[:-1])[TRUNK]
        return self._oracle.draft_logits(text, rows, drafted)
