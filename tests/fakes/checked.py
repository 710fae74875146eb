"""Contexts of every kind of memory there is, each of whose rows is compared with a fresh one's."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import pytest
from fakes import tiny

from localspec.llama import kv_cache
from localspec.llama.context import Context, single_sequence
from localspec.llama.context_params import ContextParams
from localspec.llama.library_context import library_params
from localspec.llama.model import Model
from localspec.llama.rollback import SNAPSHOTS, Rollback
from localspec.llama.sequence import KVSequence
from localspec.speculation.draft import Draft

# qwen35 has two ways, by whether snapshots are asked for; gemma3, by whether passes are so small
# that what its window of 16 tokens has passed is soon overwritten.
SLIDING = "gemma3 that slides"
KINDS = {
    "llama": ("llama", 0, Rollback.PARTIAL),
    "gemma3": ("gemma3", 0, Rollback.PARTIAL),
    SLIDING: ("gemma3", 0, Rollback.PARTIAL),
    "mamba": ("mamba", 0, Rollback.FULL),
    "qwen35": ("qwen35", SNAPSHOTS, Rollback.BOUNDED),
    "qwen35 without snapshots": ("qwen35", 0, Rollback.FULL),
    "qwen35 with two": ("qwen35", 2, Rollback.BOUNDED),
}
STATES = [kind for kind, (_, _, rollback) in KINDS.items() if rollback is not Rollback.PARTIAL]
# A cache that slides holds so many tokens of its window's layers; passes are of `_CHUNK` at most.
WINDOW, SLIDES_AFTER, _CHUNK = 16, 256, 64
# Passes of other widths differ by 1e-5; a wrong state by 1 and more, a wrong window by 0.1.
TOLERANCE = 1e-3
Make = Callable[..., KVSequence]


def write_family(path: Path, family: str) -> Path:
    """A tiny GGUF; every second layer of gemma3 looks back over the whole text."""
    usual = tiny.FAMILIES[family]

    def mixed(writer: Any) -> None:
        usual(writer)
        writer.gguf.add_uint32("gemma3.attention.sliding_window_pattern", 2)

    with pytest.MonkeyPatch.context() as patch:
        if family == "gemma3":
            patch.setitem(tiny.FAMILIES, family, mixed)
        return tiny.write_tiny(path, family, quantised=False)


def context_of(model: Model, kind: str, **options: Any) -> KVSequence:
    """A context of one of KINDS. options: of ContextParams, instead of those that serve best.

    Those are where what is computed depends least on the width of the passes.
    """
    with small_passes(kind):
        context = single_sequence(model, ContextParams(**_settings(kind, options)))
    context.chunk = _CHUNK if kind == SLIDING else context.chunk
    return context


def company_of(model: Model, kind: str, **options: Any) -> Context:
    """A context of one of KINDS for several texts."""
    with small_passes(kind):
        context = Context(model, ContextParams(**_settings(kind, options)))
    context.chunk = _CHUNK if kind == SLIDING else context.chunk
    return context


@contextmanager
def small_passes(kind: str) -> Iterator[None]:
    """Contexts made meanwhile are for passes so small that the kind's window slides."""

    def sliding(params: ContextParams) -> Any:
        values = library_params(params)
        values.n_batch, values.n_ubatch = _CHUNK, _CHUNK
        return values

    with pytest.MonkeyPatch.context() as patch:
        if kind == SLIDING:
            patch.setattr(kv_cache, "library_params", sliding)
        yield


def _settings(kind: str, options: dict[str, Any]) -> dict[str, Any]:
    exact = {"flash_attention": False, "kv_type": "f32", "n_ctx": 512}
    return {"threads": 1, "snapshots": KINDS[kind][1], **exact, **options}


class Checked:
    """A context, each of whose rows is compared with those of another that has the text alone."""

    def __init__(self, context: KVSequence, fresh: KVSequence, seed: int = 0) -> None:
        self.context = context
        self.text: list[int] = list(context.tokens)
        self.worst = 0.0
        self._fresh = fresh
        self._rng = np.random.default_rng(seed)

    def some(self, count: int) -> list[int]:
        return [int(token) for token in self._rng.integers(3, tiny.N_VOCAB, count)]

    def read(self, count: int) -> None:
        tokens = self.some(count)
        self.text += tokens
        self.compare(self.context.extend(tokens), self.text)

    def score(self, depth: int) -> tuple[int, list[int]]:
        pending, draft = self.some(1)[0], self.some(depth)
        rows = self.context.score(pending, Draft(draft)).logits.copy()
        for length, row in enumerate(rows):
            self.compare(row, [*self.text, pending, *draft[:length]])
        return pending, draft

    def step(self, depth: int, accepted: int) -> None:
        pending, draft = self.score(depth)
        self.context.commit(range(accepted))
        self.text += [pending, *draft[:accepted]]
        assert self.context.tokens == self.text

    def interrupted(self, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """A pass that is evaluated, and whose result nobody sees."""
        decode = llama_cpp.llama_decode

        def decode_and_interrupt(handle: object, batch: object) -> int:
            decode(handle, batch)
            raise KeyboardInterrupt

        pending, *draft = self.some(1 + depth)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(llama_cpp, "llama_decode", decode_and_interrupt)
            self.context.score(pending, Draft(draft))
        assert self.context.tokens == self.text

    def truncate(self, length: int) -> int:
        left = self.context.truncate(length)
        assert left <= length
        del self.text[left:]
        assert self.context.tokens == self.text
        return left

    def compare(self, row: np.ndarray, text: list[int]) -> None:
        self._fresh.truncate(0)
        expected = self._fresh.extend(text)
        self.worst = max(self.worst, float(np.abs(row - expected).max()))
        assert self.worst < TOLERANCE
        second, first = np.partition(expected, -2)[-2:]
        assert first - second < 2 * TOLERANCE or row.argmax() == expected.argmax()
