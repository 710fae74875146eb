"""Heads that draft in blocks, with random weights, for the target of `fakes.eagle3`; and in numpy.

The forward here is written from the papers' formulas and llama.cpp's tensor names, in 64-bit floats
and over whole texts: it has no cache, so that it cannot make the mistakes of one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from fakes.eagle3 import CONTEXT, HEADS, LIKELY, READS, UNKNOWN, WIDTH, _Weights
from fakes.numpy_llama import Floats, NumpyLlama, Tensors, feed_forward, rms_norm
from fakes.tiny import N_VOCAB
from numpy.typing import NDArray

from localspec.drafters.dflash import Dflash
from localspec.drafters.dflash2 import Dflash2
from localspec.drafters.dspark import Dspark
from localspec.drafters.head_cache import HeadCache
from localspec.gguf.block_heads import DFLASH, DFLASH2, DSPARK, Block, block_kind
from localspec.gguf.heads import head_of
from localspec.gguf.reader import read_header
from localspec.speculation.passes import Pass, Scores

LAYERS, BLOCK, MASK = 2, 9, 5
# Of DFlash2.
KERNEL, GROUP, RANK = 3, 8, 6
_HEAD = WIDTH // HEADS


@dataclass(frozen=True)
class BlockShape:
    """How a head is stored.

    d2t: whether it has a vocabulary of its own, part of the target's. own_embedding, own_output:
    whether it has these matrices, or uses the target's. sections: whether it says the sections of a
    target with M-RoPE. causal: the metadata attention.causal; None: without it.

    markov: the rank of a DSpark head; 0: it is none. anchor: its metadata sample_from_anchor; None:
    without it. confidence: whether it has a confidence head, and confidence_bias whether that has a
    bias. candidates: of a DFlash2 head; 0: it is none. window: tokens of a sliding window in the
    first layer; 0: it has none. logit_scale, softcap: what the target does to its logits; 0:
    nothing.
    """

    d2t: bool = False
    own_embedding: bool = False
    own_output: bool = False
    sections: bool = False
    causal: bool | None = None
    markov: int = 0
    anchor: bool | None = None
    confidence: bool = False
    confidence_bias: bool = False
    candidates: int = 0
    window: int = 0
    logit_scale: float = 0.0
    softcap: float = 0.0


SHAPES = {
    "target's matrices": BlockShape(),
    "own matrices": BlockShape(own_embedding=True, own_output=True),
    "own vocabulary": BlockShape(d2t=True, own_output=True),
    "tied": BlockShape(own_embedding=True),
    "sections": BlockShape(sections=True),
    "causal": BlockShape(causal=True),
    "not causal": BlockShape(causal=False, own_output=True),
    "window": BlockShape(window=12, own_embedding=True, own_output=True),
}


def write_block_head(
    path: Path,
    shape: BlockShape = SHAPES["target's matrices"],
    *,
    reads: tuple[int, ...] = READS,
    seed: int = 1,
    family: str = "llama",
    mask: int | None = MASK,
    without: str = "",
    **metadata: Any,
) -> Path:
    """A DFlash head for the target, as F32.

    reads: the layers of the target that it reads. family: of tiny models, whose vocabulary it has.
    without: a tensor that is left out. metadata: numbers that replace those of the architecture.
    """
    writer = _Weights(path, "dflash", WIDTH, seed)
    writer.header(LAYERS, family=family)
    header = writer.gguf
    header.add_array("dflash.target_layers", list(reads))
    if mask is not None:
        header.add_uint32("tokenizer.ggml.mask_token_id", mask)
    _add_metadata(header, shape, {"block_size": BLOCK, **metadata})
    writer.matrix("fc", WIDTH, len(reads) * WIDTH, scale=0.1)
    writer.norm("enc.output_norm", WIDTH)
    writer.norm("output_norm", WIDTH)
    tokens = list(range(N_VOCAB))
    if shape.d2t:
        tokens = [token for token in tokens if token % 3 != 2 and token not in UNKNOWN]
        tokens = sorted({*tokens, *LIKELY} - {*UNKNOWN})
        writer.put("d2t", np.array(tokens, np.int64))
    if shape.own_embedding:
        writer.embedding()
    if shape.own_output:
        # Flatter than the target's, so that several tokens are likely in each row.
        values = np.random.default_rng(seed).standard_normal((len(tokens), WIDTH)) * 0.2
        values[:, 0] = [8 if token in LIKELY else -8 for token in tokens]
        writer.put("output.weight", values)
    for layer in range(LAYERS):
        writer.layer(f"blk.{layer}", WIDTH)
        writer.norm(f"blk.{layer}.attn_k_norm", _HEAD)
        # Large, so that the rows of a block, which begin alike, attend to different tokens.
        writer.put(f"blk.{layer}.attn_q_norm.weight", np.linspace(3, 5, _HEAD))
    if shape.markov:
        _add_markov_head(writer, shape, len(tokens), seed)
    if shape.candidates:
        _add_selector(writer, shape, seed)
    writer.gguf.tensors[0].pop(without, None)
    return writer.close()


def _add_metadata(header: gguf.GGUFWriter, shape: BlockShape, numbers: dict[str, Any]) -> None:
    header.add_key_length(_HEAD)
    header.add_value_length(_HEAD)
    if shape.sections:
        header.add_array("dflash.rope.dimension_sections", [_HEAD // 2, 0, 0, 0])
    if shape.causal is not None:
        header.add_bool("dflash.attention.causal", shape.causal)
    if shape.logit_scale:
        header.add_float32("dflash.logit_scale", shape.logit_scale)
    if shape.softcap:
        header.add_float32("dflash.final_logit_softcapping", shape.softcap)
    if shape.window:
        header.add_uint32("dflash.attention.sliding_window", shape.window)
        pattern = [layer == 0 for layer in range(LAYERS)]
        header.add_array("dflash.attention.sliding_window_pattern", pattern)
    for key, value in numbers.items():
        header.kv_data[0].pop(f"dflash.{key}", None)
        if value is not None:
            header.add_uint32(f"dflash.{key}", value)


def _add_markov_head(writer: _Weights, shape: BlockShape, tokens: int, seed: int) -> None:
    """DSpark: what follows each token, and the confidence in each row."""
    random, header = np.random.default_rng(seed + 1), writer.gguf
    writer.put("markov_w1.weight", random.standard_normal((N_VOCAB, shape.markov)))
    writer.put("markov_w2.weight", random.standard_normal((tokens, shape.markov)))
    if shape.confidence:
        row = random.standard_normal((1, WIDTH + shape.markov)) * 0.3
        writer.put("conf_proj.weight", row)
    if shape.confidence_bias:
        writer.put("conf_proj.bias", np.array([0.7]))
    if shape.anchor is not None:
        header.add_bool("dflash.sample_from_anchor", shape.anchor)
    header.add_bool("dflash.has_confidence_head", shape.confidence)


def _add_selector(writer: _Weights, shape: BlockShape, seed: int) -> None:
    """DFlash2: convolutions over the block, and the scores of transitions between candidates."""
    random, header = np.random.default_rng(seed + 2), writer.gguf
    header.add_uint32("dflash.conv_kernel_size", KERNEL)
    header.add_uint32("dflash.conv_group_size", GROUP)
    header.add_uint32("dflash.selector_rank", RANK)
    header.add_uint32("dflash.selector_top_k", shape.candidates)
    writer.put("selector_predecessor.weight", random.standard_normal((N_VOCAB, RANK)))
    writer.put("selector_successor.weight", random.standard_normal((N_VOCAB, RANK)))
    writer.put("selector_hidden.weight", random.standard_normal((RANK, WIDTH)) * 0.3)
    for layer in range(LAYERS):
        for part in ("attn", "ffn"):
            base = random.standard_normal((2, KERNEL, WIDTH)) * 0.3
            base[:, 0] += 1  # mostly the row itself
            writer.put(f"blk.{layer}.{part}_conv_base", base)
            coefficients = random.standard_normal((2 * KERNEL * WIDTH // GROUP, WIDTH)) * 0.05
            writer.put(f"blk.{layer}.{part}_conv_proj.weight", coefficients)


def block_of(head: Path) -> Block:
    """The block of a head, as the package reads it."""
    block = head_of(head, read_header(head)).block
    assert block is not None
    return block


class BlockOracle:
    """The drafts of a head, from the numpy forward of its target and its own."""

    def __init__(self, target: Path | NumpyLlama, head: Path) -> None:
        self.target = target if isinstance(target, NumpyLlama) else NumpyLlama(target)
        self.weights = Tensors(head)
        self.head = head
        self.reads = [int(layer) for layer in self.weights.own("target_layers")]
        self.block = block_of(head)
        self.kind = block_kind(read_header(head))
        self._eps = float(self.weights.own("attention.layer_norm_rms_epsilon"))
        self._layers = int(self.weights.own("block_count"))
        own = [name for name in ("output", "token_embd") if f"{name}.weight" in self.weights]
        self._output = self.weights[f"{own[0]}.weight"] if own else self.target.output
        has_embedding = "token_embd" in own
        self._embedding = (
            self.weights["token_embd.weight"] if has_embedding else self.target.embedding
        )

    def features(self, tokens: Sequence[int]) -> Floats:
        """The target's hidden rows side by side: (n, layers read x width)."""
        if not tokens:
            return np.empty((0, len(self.reads) * WIDTH))
        states = self.target.hidden(list(tokens))
        return np.hstack([states[layer] for layer in self.reads])

    def block_rows(self, features: NDArray[Any], block: Sequence[int]) -> tuple[Floats, Floats]:
        """A block behind these features: (n, n_vocab) logits, and the head's own rows of it."""
        x = self._embedding[list(block)]
        fused = self._normed(features @ self.weights["fc.weight"].T, "enc.output_norm")
        for layer in range(self._layers):
            blk = f"blk.{layer}"
            normed = self._normed(x, f"{blk}.attn_norm")
            x = x + self._between(
                f"{blk}.attn", normed, lambda rows, blk=blk: self._attention(blk, fused, rows)
            )
            normed = self._normed(x, f"{blk}.ffn_norm")
            x = x + self._between(
                f"{blk}.ffn", normed, lambda rows, blk=blk: feed_forward(self.weights, blk, rows)
            )
        x = self._normed(x, "output_norm")
        logits = self._logits(x)
        if self.kind == DSPARK:
            return self._with_markov_head(logits, x, block)
        if self.kind == DFLASH2:
            return logits, self._lattice(logits, x, block)
        return logits, x

    def draft_logits(self, text: Sequence[int], drafted: Sequence[int]) -> Floats:
        """The logits that each of these drafted tokens is drawn from: (len(drafted), n_vocab).

        text: the committed tokens, the last of which is pending: the target's hidden rows are of
        the tokens before it.
        """
        logits, own = self._block_after(text)
        return self.rows_of(logits, own, drafted)

    def confidence(self, text: Sequence[int]) -> Floats:
        """DSpark: the probability that each token of a draft after `text` is accepted."""
        return self._block_after(text)[1][self.block.first :, 0]

    def _block_after(self, text: Sequence[int]) -> tuple[Floats, Floats]:
        block = [text[-1], *[self.block.mask] * (self.block.size - 1)]
        return self.block_rows(self.features(text[:-1]), block)

    def rows_of(self, logits: Floats, own: Floats, drafted: Sequence[int]) -> Floats:
        """The rows among those of a block that these tokens are drawn from."""
        if self.kind != DFLASH2:
            rows_of_tokens = logits[self.block.first :][: len(drafted)]
            if self.kind == DFLASH:
                rows_of_tokens = rows_of_tokens * self.weights.own("logit_scale", 1.0)
                if cap := self.weights.own("final_logit_softcapping"):
                    rows_of_tokens = cap * np.tanh(rows_of_tokens / cap)
            return rows_of_tokens
        rows, before, count = list[Floats](), 0, self.block.candidates
        for place, token in enumerate(drafted):
            candidates = own[1 + place, :count].astype(int).tolist()
            rows.append(np.full(N_VOCAB, -np.inf))
            scores = own[1 + place, count : count * (count + 1)].reshape(count, count)
            rows[-1][candidates] = scores[before]
            before = candidates.index(token) if token in candidates else 0
        return np.array(rows)

    def draft(self, text: Sequence[int], depth: int) -> list[int]:
        """The greedy draft after `text`."""
        drafted: list[int] = []
        for _ in range(min(depth, self.block.drafted)):
            drafted.append(int(self.draft_logits(text, [*drafted, 0])[-1].argmax()))
        return drafted

    def _with_markov_head(
        self, logits: Floats, x: Floats, block: Sequence[int]
    ) -> tuple[Floats, Floats]:
        """DSpark: the logits given the likeliest tokens before, and the confidence in each row."""
        weights, before, first = self.weights, block[0], self.block.first
        known = weights["d2t"] if "d2t" in weights else np.arange(N_VOCAB)
        logits, confidence = logits.copy(), np.full_like(x, 0.5)
        for place in range(first, len(block)):
            embedded = weights["markov_w1.weight"][before]
            logits[place, known] += weights["markov_w2.weight"] @ embedded
            before = int(logits[place].argmax())
            if "conf_proj.weight" in weights:
                value = weights["conf_proj.weight"].ravel() @ np.concatenate([x[place], embedded])
                if "conf_proj.bias" in weights:
                    value += weights["conf_proj.bias"][0]
                confidence[place] = 1 / (1 + np.exp(-value))
        return logits, confidence

    def _between(self, name: str, x: Floats, part: Callable[[Floats], Floats]) -> Floats:
        """DFlash2 mixes neighbouring rows before and after a part of a layer; others do not."""
        if self.kind != DFLASH2:
            return part(x)
        groups = WIDTH // GROUP
        dynamic = (x @ self.weights[f"{name}_conv_proj.weight"].T).reshape(
            len(x), 2, KERNEL, groups
        )
        base = self.weights[f"{name}_conv_base"]
        return self._mixed(part(self._mixed(x, dynamic[:, 0], base[0])), dynamic[:, 1], base[1])

    @staticmethod
    def _mixed(x: Floats, dynamic: Floats, base: Floats) -> Floats:
        """Each row plus earlier ones of its block. dynamic: by row; base: by tap and number."""
        weight = np.repeat(dynamic, GROUP, axis=-1) + base
        found = np.zeros_like(x)
        for tap in range(min(KERNEL, len(x))):
            found[tap:] += weight[tap:, tap] * x[: len(x) - tap]
        return found

    def _lattice(self, logits: Floats, x: Floats, block: Sequence[int]) -> Floats:
        """DFlash2: for each row the ids of candidates, and their scores after each one before."""
        count = self.block.candidates
        before_of = self.weights["selector_predecessor.weight"]
        after_of = self.weights["selector_successor.weight"]
        lattice = np.zeros((len(x), max(WIDTH, count * (count + 1))))
        before = np.array([block[0]] * count)
        for place in range(1, len(x)):
            candidates = np.argsort(-logits[place], kind="stable")[:count]
            gate = self.weights["selector_hidden.weight"] @ x[place]
            scores = (before_of[before] * gate) @ after_of[candidates].T + logits[place, candidates]
            lattice[place, : count * (count + 1)] = [*candidates, *scores.ravel()]
            before = candidates
        return lattice

    def _attention(self, blk: str, fused: Floats, x: Floats) -> Floats:
        """Attention of the block's rows over the text's and, as far as they may, each other."""
        weights, (n, m) = self.weights, (len(fused), len(x))
        base = float(weights.own("rope.freq_base"))
        heads, shared = (int(weights.own(f"attention.head_count{end}")) for end in ("", "_kv"))
        query = self._heads(x @ weights[f"{blk}.attn_q.weight"].T, heads)
        both = np.vstack([fused, x])
        key = self._heads(both @ weights[f"{blk}.attn_k.weight"].T, shared)
        value = self._heads(both @ weights[f"{blk}.attn_v.weight"].T, shared)
        query = turned(self._normed(query, f"{blk}.attn_q_norm"), base, start=n)
        key = turned(self._normed(key, f"{blk}.attn_k_norm"), base, start=0)
        mixed = np.empty_like(query)
        for head in range(heads):
            kv = head // (heads // shared)
            scores = query[:, head] @ key[:, kv].T / np.sqrt(query.shape[-1])
            if self.weights.own("attention.causal"):
                scores[:, n:][np.triu_indices(m, 1)] = -np.inf
            if blk == "blk.0" and (window := self.weights.own("attention.sliding_window")):
                far = np.arange(n, n + m)[:, None] - np.arange(n + m) >= window
                scores[far] = -np.inf
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            mixed[:, head] = shares / shares.sum(axis=1, keepdims=True) @ value[:, kv]
        return mixed.reshape(m, -1) @ weights[f"{blk}.attn_output.weight"].T

    def _logits(self, x: Floats) -> Floats:
        known = x @ self._output.T
        if "d2t" not in self.weights:
            return known
        logits = np.full((len(x), N_VOCAB), -np.inf)
        logits[:, self.weights["d2t"]] = known
        return logits

    @staticmethod
    def _heads(x: Floats, count: int) -> Floats:
        return x.reshape(len(x), count, -1)

    def _normed(self, x: Floats, name: str) -> Floats:
        return rms_norm(x, self.weights[f"{name}.weight"], self._eps)


def turned(x: Floats, base: float, *, start: int) -> Floats:
    """(n, heads, width) with the halves of each head turned against each other by position."""
    n, _, width = x.shape
    angles = np.arange(start, start + n)[:, None] * base ** (-np.arange(0, width, 2) / width)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    low, high = x[..., : width // 2], x[..., width // 2 :]
    return np.concatenate([low * cos - high * sin, low * sin + high * cos], axis=-1)


class NumpyBlockCache:
    """The head's KV cache in numpy: it computes the rows that it is given, whatever they are.

    passes: the number of decodes; blocks: of them, those of blocks. wanted: the rows whose logits
    were asked for.
    """

    def __init__(self, oracle: BlockOracle, *, chunk: int = 64, n_ctx: int = CONTEXT) -> None:
        self.n_vocab, self.n_ctx, self.chunk = N_VOCAB, n_ctx, chunk
        self.tokens: list[int] = []
        self.passes = self.blocks = self.wanted = 0
        self._oracle = oracle
        self._features = np.empty((0, len(oracle.reads) * WIDTH))

    @property
    def context(self) -> "NumpyBlockCache":
        return self

    def truncate(self, length: int) -> int:
        del self.tokens[length:]
        self._features = self._features[:length]
        return len(self.tokens)

    def decode(self, passes: Sequence[Pass]) -> list[Scores]:
        (one,) = passes
        assert one.sequence is self
        self.passes += 1
        self.wanted += one.wanted
        if one.embeddings is not None:
            assert 0 < len(one.tokens) == len(one.embeddings) <= self.chunk
            assert not one.wanted and not one.drafted
            self.tokens += one.tokens
            self._features = np.vstack([self._features, one.embeddings])
            return [Scores(np.empty((0, N_VOCAB), np.float32))]
        self.blocks += 1
        assert one.drafted == len(one.tokens) == self._oracle.block.size
        assert len(self.tokens) + len(one.tokens) <= self.n_ctx
        logits, own = self._oracle.block_rows(self._features, one.tokens)
        assert one.wanted in (0, len(one.tokens))
        hidden = {layer: own.astype(np.float32) for layer in one.hidden}
        return [Scores(logits[: one.wanted].astype(np.float32), hidden=hidden)]


_OWN = BlockShape(own_embedding=True, own_output=True)
# A head of each kind, and its drafter.
KINDS: dict[str, tuple[BlockShape, type[Dflash]]] = {
    "dflash": (_OWN, Dflash),
    "dflash of scaled logits": (replace(_OWN, logit_scale=0.7, softcap=6.0), Dflash),
    "dspark": (replace(_OWN, markov=4, confidence=True), Dspark),
    "dspark without anchor": (replace(_OWN, markov=4, anchor=False), Dspark),
    "dflash2": (replace(_OWN, candidates=5), Dflash2),
}


def block_drafter(cache: HeadCache, head: Path, drafter: type[Dflash] = Dflash) -> Dflash:
    """The drafter of a head for a text in this cache."""
    read = head_of(head, read_header(head))
    assert read.block is not None
    return drafter(cache, name="head", n_vocab=N_VOCAB, layers=read.layers, block=read.block)
