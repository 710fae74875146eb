"""A PARD model with random weights, and its drafts in numpy."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fakes.eagle3 import CONTEXT, write_target
from fakes.numpy_llama import Floats, NumpyLlama
from fakes.tiny import N_VOCAB

from localspec.speculation.passes import Pass, Scores

MASK = 281


def write_pard(path: Path, *, seed: int = 5, **metadata: Any) -> Path:
    """A small model that finds the same tokens likely as `fakes.eagle3.write_target` does."""
    return write_target(path, seed=seed, **metadata)


class PardOracle:
    """The drafts of a PARD model, from one numpy forward of the text with its masks."""

    def __init__(self, model: Path, mask: int = MASK) -> None:
        self.llama = NumpyLlama(model)
        self.mask = mask

    def draft_logits(self, text: list[int], drafted: list[int]) -> Floats:
        """The logits that each of these drafted tokens is drawn from; (len(drafted), n_vocab)."""
        masks = [self.mask] * (len(drafted) - 1)
        return self.llama.logits([*text, *masks])[-len(drafted) :]

    def draft(self, text: list[int], depth: int) -> list[int]:
        """The greedy draft after `text`."""
        return [int(row.argmax()) for row in self.draft_logits(text, [0] * depth)]


class NumpyCache:
    """A draft model's KV cache in numpy. evaluated: the number of tokens in all passes.

    keeps: whether it can be cut anywhere; else a draft that is removed takes its whole pass along.
    """

    def __init__(self, llama: NumpyLlama, *, chunk: int = 64, n_ctx: int = CONTEXT) -> None:
        self.n_vocab, self.n_ctx, self.chunk = N_VOCAB, n_ctx, chunk
        self.tokens: list[int] = []
        self.evaluated = self.passes = 0
        self.keeps = True
        self._llama = llama
        self._before = 0
        self._open: Sequence[int] | None = None

    @property
    def context(self) -> "NumpyCache":
        return self

    def take_prefix(self, tokens: Sequence[int]) -> int:
        shared = 0
        while shared < min(len(tokens), len(self.tokens)) and tokens[shared] == self.tokens[shared]:
            shared += 1
        return self.truncate(shared)

    shared = take_prefix

    def truncate(self, length: int) -> int:
        self._open = None
        del self.tokens[length:]
        return len(self.tokens)

    def checkpoint(self) -> None:
        pass

    def decode(self, passes: Sequence[Pass]) -> list[Scores]:
        (one,) = passes
        assert one.sequence is self
        assert 0 < len(one.tokens) <= self.chunk
        self._open = None
        self.passes += 1
        self.evaluated += len(one.tokens)
        whole = [*self.tokens, *one.tokens]
        assert len(whole) <= self.n_ctx
        if one.drafted is None:
            self.tokens = whole
        else:
            self._before, self._open = len(self.tokens), one.tokens
            self._drafted = one.drafted
        return [Scores(self._llama.logits(whole)[-one.wanted :].astype(np.float32))]

    def commit(self, path: Sequence[int]) -> None:
        assert self._open is not None, "nothing was scored"
        kept = len(self._open) - self._drafted + len(path)
        self.tokens += self._open[:kept]
        if not self.keeps and kept < len(self._open):
            del self.tokens[self._before :]
        self._open = None
