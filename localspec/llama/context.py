"""Context: one cache of one model, and exactly what tokens it holds."""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from localspec.errors import LocalspecError, ModelLoadError
from localspec.llama import library
from localspec.llama.batch import Batch
from localspec.llama.model import Model
from localspec.speculation.draft import MAX_DEPTH, NOTHING, Draft
from localspec.speculation.target import Scores
from localspec.tokens import common_prefix

_SEQUENCE = 0
# Prompt tokens per pass: few enough that cancelling is prompt.
CHUNK = 512
# Rows with logits in one pass; each reserves n_vocab floats in the compute buffer.
_MOST_ROWS = MAX_DEPTH + 1


class Rollback(Enum):
    """What a cache can forget: the kinds of memory llama.cpp has.

    PARTIAL: any number of last tokens. BOUNDED: a few of the last pass.
    FULL: nothing but everything.
    """

    PARTIAL = "any last tokens"
    BOUNDED = "only tokens of the last pass"
    FULL = "only everything at once"


class Context:
    """A model's cache as a list of tokens that can be extended, scored and cut back.

    n_ctx: how many tokens it may hold. threads: CPU threads. flash_attention: None lets the
    library use it wherever it can. kv_type: what keys and values are kept as, by ggml's number.

    least_rows: narrower passes are padded to so many rows (`width.probe` tells how many make the
    logits independent of the width). padded: to how many rows a pass that scores a draft is padded,
    by how many it needs. The padding is forgotten at once.

    `tokens` is what the cache holds; prompts go in `chunk` tokens at a time. If a pass is
    interrupted, the cache may for a moment hold more; the next call rolls that back first.

    Raises ModelLoadError when the library cannot make it (usually: not enough memory).
    """

    def __init__(
        self,
        model: Model,
        *,
        n_ctx: int,
        threads: int,
        flash_attention: bool | None = None,
        kv_type: int = llama_cpp.GGML_TYPE_F16,
    ) -> None:
        self.model = model
        self.n_vocab = model.n_vocab
        self.chunk = CHUNK
        self.least_rows = 1
        self.padded: Callable[[int], int] = int
        self.tokens: list[int] = []
        self._unfinished = False
        self._draft = NOTHING
        params = context_params(
            n_ctx, threads=threads, flash_attention=flash_attention, kv_type=kv_type
        )
        self._handle = _new_context(model, params)
        self._room = min(n_ctx, int(llama_cpp.llama_n_ctx(self._handle)))
        self._memory = llama_cpp.llama_get_memory(self._handle)
        self._batch = Batch(CHUNK)
        try:
            self.rollback = self._probe_rollback()
        except BaseException:
            self.close()
            raise

    @property
    def n_ctx(self) -> int:
        """How many tokens it may hold, the padding of the last pass left aside."""
        return self._room - (self.least_rows - 1)

    # Extending: prompts, and the drafter's own tokens.

    def shared(self, tokens: Sequence[int]) -> int:
        """How many tokens at the start of `tokens` the cache holds."""
        return common_prefix(self.tokens, tokens)

    def extend(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Evaluate tokens after those held, in chunks.

        Returns the (n_vocab,) float32 logits after the last one: a view, valid until the next
        pass. `tokens` must not be empty.
        """
        self._discard_unfinished()
        for start in range(0, len(tokens), self.chunk):
            chunk = tokens[start : start + self.chunk]
            self._decode(chunk, all_rows=False, width=self.least_rows)
            self._hold(chunk)
        logits: NDArray[np.float32] = self._rows(1)[0]
        return logits

    def truncate(self, length: int) -> int:
        """Hold at most the first `length` tokens; returns how many are really left.

        That may be fewer, down to 0, where the cache cannot be cut at that place: evaluate the
        missing ones again.
        """
        self._discard_unfinished()
        if length < len(self.tokens):
            del self.tokens[self._roll_back(length) :]
        return len(self.tokens)

    # Scoring a draft.

    def score(self, pending: int, draft: Draft) -> Scores:
        """One pass over the pending token and a chain of drafted tokens."""
        if draft.parents is not None:
            raise LocalspecError("a tree draft cannot be scored here yet; propose a chain")
        if len(draft) and self.rollback is not Rollback.PARTIAL:
            raise LocalspecError(f"this model's cache can forget {self.rollback.value}: no drafts")
        self._discard_unfinished()
        rows = 1 + len(draft)
        width = max(rows, min(self.padded(rows), self._room - len(self.tokens)), self.least_rows)
        self._decode([pending, *draft.tokens], all_rows=True, width=width)
        self._draft = draft
        self._pending = pending
        return Scores(self._rows(rows), width - rows)

    def commit(self, path: Sequence[int]) -> None:
        """Keep the pending token and the first `len(path)` drafted ones; forget the others."""
        kept = [self._pending, *self._draft.tokens[: len(path)]]
        dropped = len(self._draft) - len(path)
        self._hold(kept)
        if not dropped:
            return
        left = self._roll_back(len(self.tokens))
        lost = self.tokens[left:]
        if lost:
            del self.tokens[left:]
            self.extend(lost)

    def close(self) -> None:
        """Free the cache."""
        handle, self._handle = self._handle, None
        if handle:
            self._memory = None
            self._batch.close()
            llama_cpp.llama_free(handle)

    def __enter__(self) -> "Context":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # The library.

    def _decode(self, tokens: Sequence[int], *, all_rows: bool, width: int = 1) -> None:
        if len(self.tokens) + len(tokens) > self.n_ctx:
            raise LocalspecError(f"the context of {self.n_ctx} tokens is full; use a larger one")
        padding = max(0, width - len(tokens))
        self._batch.fill(tokens, start=len(self.tokens), all_rows=all_rows, padding=padding)
        library.forget_log()
        self._unfinished = True
        status = llama_cpp.llama_decode(self._handle, self._batch.struct)
        if status != 0:
            self._discard_unfinished()
            raise LocalspecError(
                f"llama.cpp could not evaluate {len(tokens)} tokens (status {status}"
                f"{', ' + library.complaint() if library.complaint() else ''})"
            )
        end = len(self.tokens) + len(tokens)
        if padding and self._roll_back(end) != end:
            self.tokens.clear()
            raise LocalspecError("the padding of a pass cannot be forgotten; do without")

    def _rows(self, count: int) -> NDArray[np.float32]:
        pointer = llama_cpp.llama_get_logits(self._handle)
        return np.ctypeslib.as_array(pointer, shape=(count, self.n_vocab))

    def _hold(self, tokens: Sequence[int]) -> None:
        """These tokens of the last pass are now held."""
        self.tokens.extend(tokens)
        self._unfinished = False

    def _discard_unfinished(self) -> None:
        """Roll back what an interrupted pass may have left in the cache."""
        if self._handle is None:
            raise LocalspecError("this context was closed; load the model again")
        if self._unfinished:
            self._unfinished = False
            del self.tokens[self._roll_back(len(self.tokens)) :]

    def _roll_back(self, length: int) -> int:
        """Cut the cache itself to `length` tokens, or clear it; returns what it then holds."""
        if self._can_cut_to(length) and llama_cpp.llama_memory_seq_rm(
            self._memory, _SEQUENCE, length, -1
        ):
            return length
        if self._memory:
            llama_cpp.llama_memory_clear(self._memory, True)
        return 0

    def _can_cut_to(self, length: int) -> bool:
        """Whether the window of a sliding-window cache still reaches back from there.

        The library cuts deeper without complaint and then computes wrong logits.
        """
        if not self._memory:
            return False
        if not self.model.window:
            return True
        oldest = llama_cpp.llama_memory_seq_pos_min(self._memory, _SEQUENCE)
        return bool(0 <= oldest <= max(0, length - self.model.window))

    def _probe_rollback(self) -> Rollback:
        if not self._memory:
            raise ModelLoadError(
                f"{self.model.path.name} keeps no cache of its text; pass a text-generation model"
            )
        if llama_cpp.llama_n_rs_seq(self._handle) > 0:
            return Rollback.BOUNDED
        self._decode([0, 0], all_rows=False)
        can_cut = llama_cpp.llama_memory_seq_rm(self._memory, _SEQUENCE, 1, -1)
        llama_cpp.llama_memory_clear(self._memory, True)
        self._unfinished = False
        return Rollback.PARTIAL if can_cut else Rollback.FULL


def context_params(n_ctx: int, *, threads: int, flash_attention: bool | None, kv_type: int) -> Any:
    """How the library is to make a context; the arguments are those of Context."""
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = n_ctx
    params.n_batch = params.n_ubatch = CHUNK
    params.n_outputs_max = _MOST_ROWS
    params.n_threads = params.n_threads_batch = threads
    params.flash_attn_type = -1 if flash_attention is None else int(flash_attention)
    params.type_k = params.type_v = kv_type
    params.no_perf = True
    return params


def _new_context(model: Model, params: Any) -> Any:
    library.forget_log()
    handle = llama_cpp.llama_init_from_model(model.handle, params)
    if not handle:
        raise ModelLoadError(
            f"{model.path.name}: a context of {params.n_ctx} tokens cannot be made "
            f"({library.complaint() or 'no reason given'}); try a smaller one with --ctx"
        )
    return handle
