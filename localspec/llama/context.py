"""Context: one cache of one model, and exactly what tokens it holds."""

from collections.abc import Callable, Sequence
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from localspec.errors import LocalspecError, ModelLoadError
from localspec.llama import library
from localspec.llama.batch import Batch
from localspec.llama.model import Model
from localspec.llama.rollback import Memory, Rollback
from localspec.llama.state import State
from localspec.speculation.draft import MAX_DEPTH, NOTHING, Draft
from localspec.speculation.target import Scores
from localspec.utils.tokens import common_prefix

# Prompt tokens per pass: few enough that cancelling is prompt.
CHUNK = 512
# The most rows with logits in one pass; each reserves n_vocab floats in the compute buffer.
_MOST_ROWS = MAX_DEPTH + 1
# A pass evaluates up to so many tokens again that a rollback took; more go in a pass of their own.
_MOST_AGAIN = 8


class Context:
    """A model's cache of a text that can be extended, scored and cut back.

    n_ctx: how many tokens it may hold; room: with the padding of passes. threads: CPU threads.
    flash_attention: None lets the library use it wherever it can. kv_type: what keys and values are
    kept as, by ggml's number.
    snapshots: how many tokens of a pass a recurrent model may forget without a checkpoint, where
    the library can do that.

    least_rows: narrower passes are padded to so many rows (`width.probe` tells how many make the
    logits independent of the width). padded: to how many rows a pass that scores a draft is padded,
    by how many it needs. The padding is forgotten at once; where that is not possible, there is
    none.

    `tokens` is the committed text; prompts go in `chunk` tokens at a time. If a pass is
    interrupted, the cache may for a moment hold more; the next call rolls that back first. After a
    rollback it may hold less; the next pass evaluates that again. `evaluated` counts the tokens of
    all passes, their padding left aside.

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
        snapshots: int = 0,
    ) -> None:
        self.model = model
        self.snapshots = snapshots
        self.n_vocab = model.n_vocab
        self.chunk = CHUNK
        self.least_rows = 1
        self.padded: Callable[[int], int] = int
        self.tokens: list[int] = []
        self.evaluated = 0
        self._draft = NOTHING
        params = context_params(
            n_ctx,
            threads=threads,
            flash_attention=flash_attention,
            kv_type=kv_type,
            snapshots=snapshots,
        )
        self._handle = new_context(model, params)
        self.room = min(n_ctx, int(llama_cpp.llama_n_ctx(self._handle)))
        self._memory = Memory(self._handle, model.sliding_window)
        self._batch = Batch(CHUNK)
        try:
            self._probe_rollback()
        except BaseException:
            self.close()
            raise
        self.evaluated = 0

    @property
    def rollback(self) -> Rollback:
        """What its memory can forget."""
        return self._memory.kind

    @property
    def n_ctx(self) -> int:
        """How many tokens it may hold, the padding of the last pass left aside."""
        return self.room - (self.least_rows - 1)

    # Extending: prompts, and the drafter's own tokens.

    def shared(self, tokens: Sequence[int]) -> int:
        """How many tokens at the start of `tokens` are those of the text."""
        return common_prefix(self.tokens, tokens)

    def extend(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Evaluate tokens after those held, in chunks.

        Returns the (n_vocab,) float32 logits after the last one: a view, valid until the next
        pass. `tokens` must not be empty.
        """
        self._settle()
        self._require_room(len(tokens))
        self._catch_up(self.chunk - 1)
        at = 0
        while at < len(tokens):
            chunk = tokens[at : at + self.chunk - len(self._lacking)]
            self._decode([*self._lacking, *chunk], wanted=1, width=self.least_rows)
            self.tokens.extend(chunk)
            at += len(chunk)
        logits: NDArray[np.float32] = self._rows(1)[0]
        return logits

    def hold(self, tokens: Sequence[int]) -> None:
        """Hold these tokens and no others; only what is not there yet is evaluated."""
        held = self.truncate(self.shared(tokens))
        if held < len(tokens):
            self.extend(tokens[held:])

    def truncate(self, length: int) -> int:
        """Hold at most the first `length` tokens; returns how many are really left.

        That may be fewer, down to 0, where the cache cannot be cut at that place: evaluate the
        missing ones again.
        """
        self._settle()
        del self.tokens[self._memory.cut(length) :]
        return len(self.tokens)

    def checkpoint(self) -> None:
        """Make it possible to truncate to the tokens held now, whatever comes after them."""
        self._settle()
        self._memory.checkpoint()

    def mark(self) -> None:
        """Keep what the cache holds now as somewhere to truncate to, until it is cut to less.

        Of such marks there are a few; the oldest go first. Where the cache can be cut anywhere,
        there is nothing to do.
        """
        self._settle()
        self._memory.mark()

    # Going on elsewhere.

    def state(self) -> State:
        """All that the cache holds, to go on from it in another context or later.

        What of the text it lacks after a rollback is not in it; there are no tokens in it at all
        where the library cannot copy a cache.
        """
        self._settle()
        data = self._memory.copy() if self._memory.length else None
        if data is None:
            return State((), np.empty(0, np.uint8))
        return State(tuple(self.tokens[: self._memory.length]), data)

    def restore(self, state: State) -> bool:
        """Hold a state's tokens, instead of those held, without evaluating anything.

        False, and the cache is empty, where the state does not fit: evaluate its tokens. Of a
        recurrent model and of a sliding window only the end is in a state: it can be extended, and
        truncated to what comes after, but not to what was before.
        """
        self.truncate(0)
        if not state.tokens or len(state.tokens) > self.n_ctx:
            return not state.tokens
        restored = self._memory.load(state.data, len(state.tokens))
        if restored:
            self.tokens = list(state.tokens)
        return restored

    # Scoring a draft.

    def score(self, pending: int, draft: Draft) -> Scores:
        """One pass over the pending token and a chain of drafted tokens."""
        if draft.parents is not None:
            raise LocalspecError("a tree draft cannot be scored here yet; propose a chain")
        if len(draft) and self.rollback is Rollback.NOTHING:
            raise LocalspecError(f"this model's cache can forget {self.rollback.value}: no drafts")
        self._settle()
        rows = 1 + len(draft)
        self._require_room(rows)
        self._catch_up(_MOST_AGAIN)
        self._memory.prepare(len(draft))
        again = self._lacking
        width = max(rows, min(self.padded(rows), self.room - len(self.tokens)), self.least_rows)
        padding = self._decode([*again, pending, *draft.tokens], wanted=rows, width=width)
        self._draft = draft
        self._pending = pending
        return Scores(self._rows(rows), padding, again=len(again))

    def commit(self, path: Sequence[int]) -> None:
        """Keep the pending token and the first `len(path)` drafted ones; forget the others."""
        self.tokens += [self._pending, *self._draft.tokens[: len(path)]]
        self._settle()

    def close(self) -> None:
        """Free the cache."""
        handle, self._handle = self._handle, None
        if handle:
            self._batch.close()
            llama_cpp.llama_free(handle)

    def __enter__(self) -> "Context":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # The library.

    @property
    def _lacking(self) -> list[int]:
        """The last tokens of the text that the cache lacks, after a rollback."""
        return self.tokens[self._memory.length :]

    def _settle(self) -> None:
        """Roll back what of the last pass is not in the text."""
        if self._handle is None:
            raise LocalspecError("this context was closed; load the model again")
        self._memory.cut(len(self.tokens))

    def _catch_up(self, most: int) -> None:
        """Evaluate what the cache lacks, if that is more than `most` tokens."""
        if len(self._lacking) > most:
            while self._lacking:
                self._decode(self._lacking[: self.chunk], wanted=1, width=self.least_rows)

    def _require_room(self, count: int) -> None:
        if len(self.tokens) + count > self.n_ctx:
            raise LocalspecError(f"the context of {self.n_ctx} tokens is full; use a larger one")

    def _decode(self, tokens: Sequence[int], *, wanted: int, width: int = 1) -> int:
        """Evaluate tokens after what the cache holds; how many rows of padding that took.

        wanted: of how many of the last ones there are logits.
        """
        can_pad = self.rollback is Rollback.PARTIAL
        padding = max(0, width - len(tokens)) if can_pad else 0
        end = self._memory.length + len(tokens)
        self._batch.fill(
            tokens,
            start=end - len(tokens),
            wanted=wanted,
            padding=padding,
            # The last layers compute only rows whose logits are wanted, by kernels of their own.
            padding_wanted=self.least_rows > 1,
        )
        library.clear_log()
        self._memory.starts()
        status = llama_cpp.llama_decode(self._handle, self._batch.struct)
        if status != 0:
            self._settle()
            raise LocalspecError(
                f"llama.cpp could not evaluate {len(tokens)} tokens (status {status}"
                f"{', ' + library.first_error() if library.first_error() else ''})"
            )
        self._memory.holds(len(tokens) + padding)
        self.evaluated += len(tokens)
        if padding and self._memory.cut(end) != end:
            raise LocalspecError("the padding of a pass cannot be forgotten; do without")
        return padding

    def _rows(self, count: int) -> NDArray[np.float32]:
        pointer = llama_cpp.llama_get_logits(self._handle)
        return np.ctypeslib.as_array(pointer, shape=(count, self.n_vocab))

    def _probe_rollback(self) -> None:
        if not self._memory.pointer:
            raise ModelLoadError(
                f"{self.model.path.name} keeps no cache of its text; pass a text-generation model"
            )
        self._decode([0, 0], wanted=1)
        self._memory.probe()


def context_params(
    n_ctx: int,
    *,
    threads: int,
    flash_attention: bool | None,
    kv_type: int,
    snapshots: int = 0,
) -> Any:
    """How the library is to make a context; the arguments are those of Context."""
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = n_ctx
    params.n_batch = params.n_ubatch = CHUNK
    params.n_outputs_max = _MOST_ROWS
    # Layers with a sliding window keep the window and a pass, not the whole text.
    params.swa_full = False
    # The library takes 0 for architectures that it makes none for.
    params.n_rs_seq = snapshots
    params.n_threads = params.n_threads_batch = threads
    params.flash_attn_type = -1 if flash_attention is None else int(flash_attention)
    params.type_k = params.type_v = kv_type
    params.no_perf = True
    return params


def new_context(model: Model, params: Any) -> Any:
    """The library's context; free it. Raises ModelLoadError when it cannot be made."""
    library.clear_log()
    handle = llama_cpp.llama_init_from_model(model.handle, params)
    if not handle:
        raise ModelLoadError(
            f"{model.path.name}: a context of {params.n_ctx} tokens cannot be made "
            f"({library.first_error() or 'no reason given'}); try a smaller one with --ctx"
        )
    return handle
