"""Context: a KV cache of a model, and the tokens of the text in it."""

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

# Prompt tokens per pass: few enough that a generation can be cancelled quickly.
CHUNK = 512
# The most rows with logits in one pass; each row reserves n_vocab floats of compute buffer.
_MAX_OUTPUT_ROWS = MAX_DEPTH + 1
# A pass over a draft also evaluates up to this many missing tokens; more get their own pass.
_MAX_REPLAYED = 8


class Context:
    """A model's KV cache of one text: extends the text, scores drafts and rolls back.

    n_ctx: the most tokens of text. n_cells: the most tokens, padding of a pass included. threads:
    CPU threads. flash_attention: None lets the library decide. kv_type: the ggml type of keys and
    values. snapshots: how many tokens of a pass a recurrent model can roll back without a
    checkpoint, if the library supports that.

    least_rows: the least rows of a pass; smaller passes are padded (`batch_invariance.probe` finds
    the value that makes logits independent of the width). padded: maps the rows that a pass over a
    draft needs to the rows that it gets. Padding is removed from the cache at once; where that is
    not possible, passes are not padded.

    tokens: the committed text. chunk: prompt tokens per pass. evaluated: the number of tokens in
    all passes, without padding. After an interrupted pass the cache may hold more than `tokens`;
    the next call first rolls back the rest. After a rollback the cache may hold less; the next pass
    first evaluates the missing tokens.

    Raises ModelLoadError if the library cannot make the context (usually for lack of memory).
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
        self.n_cells = min(n_ctx, int(llama_cpp.llama_n_ctx(self._handle)))
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
        """How the KV cache can be rolled back."""
        return self._memory.kind

    @property
    def n_ctx(self) -> int:
        """The context size in tokens: `n_cells` without the padding of the last pass."""
        return self.n_cells - (self.least_rows - 1)

    # Extending: prompts, and the drafter's own tokens.

    def shared(self, tokens: Sequence[int]) -> int:
        """The length of the common prefix of `tokens` and the text."""
        return common_prefix(self.tokens, tokens)

    def extend(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Append tokens to the text and evaluate them in chunks. `tokens` must not be empty.

        Returns the logits after the last token, (n_vocab,) float32: a view, valid until the next
        pass.
        """
        self._roll_back()
        self._require_space(len(tokens))
        self._evaluate_missing(self.chunk - 1)
        at = 0
        while at < len(tokens):
            chunk = tokens[at : at + self.chunk - len(self._missing)]
            self._decode([*self._missing, *chunk], wanted=1, width=self.least_rows)
            self.tokens.extend(chunk)
            at += len(chunk)
        logits: NDArray[np.float32] = self._rows(1)[0]
        return logits

    def set_tokens(self, tokens: Sequence[int]) -> None:
        """Make `tokens` the text; only tokens after the common prefix are evaluated."""
        held = self.truncate(self.shared(tokens))
        if held < len(tokens):
            self.extend(tokens[held:])

    def truncate(self, length: int) -> int:
        """Cut the text to its first `length` tokens; returns how many are left.

        Fewer may be left, down to 0, if the cache cannot be cut there: the caller then evaluates
        the missing tokens again.
        """
        self._roll_back()
        del self.tokens[self._memory.cut(length) :]
        return len(self.tokens)

    def checkpoint(self) -> None:
        """Make it possible to truncate to the present text later; replaces the last checkpoint."""
        self._roll_back()
        self._memory.checkpoint()

    def mark(self) -> None:
        """Save the state of the present text, so that a later truncate can return to it.

        A few marks are kept, and the oldest are dropped first. A mark is deleted when the text is
        cut to less. If the cache can be cut anywhere, this does nothing.
        """
        self._roll_back()
        self._memory.mark()

    # Saving and restoring.

    def state(self) -> State:
        """A copy of the KV cache, to restore later or in another context.

        Tokens that the cache lacks after a rollback are not part of it. The copy is empty if the
        library cannot copy this cache.
        """
        self._roll_back()
        data = self._memory.copy() if self._memory.length else None
        if data is None:
            return State((), np.empty(0, np.uint8))
        return State(tuple(self.tokens[: self._memory.length]), data)

    def restore(self, state: State) -> bool:
        """Replace the text by a state's, without evaluating tokens.

        Returns False, with an empty cache, if the state does not fit: the caller then evaluates the
        tokens. A state of a recurrent model or of a sliding window covers only the end of its text:
        the text can be extended, and truncated back to the state's length, but not to less.
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
        """Score the pending token and a chain of drafted tokens in one pass."""
        if draft.parents is not None:
            raise LocalspecError("a tree draft cannot be scored here yet; propose a chain")
        if len(draft) and self.rollback is Rollback.NOTHING:
            raise LocalspecError(f"this model's cache can forget {self.rollback.value}: no drafts")
        self._roll_back()
        rows = 1 + len(draft)
        self._require_space(rows)
        self._evaluate_missing(_MAX_REPLAYED)
        self._memory.prepare(len(draft))
        again = self._missing
        width = max(rows, min(self.padded(rows), self.n_cells - len(self.tokens)), self.least_rows)
        padding = self._decode([*again, pending, *draft.tokens], wanted=rows, width=width)
        self._draft = draft
        self._pending = pending
        return Scores(self._rows(rows), padding, again=len(again))

    def commit(self, path: Sequence[int]) -> None:
        """Append the pending token and the first `len(path)` drafted tokens; remove the others."""
        self.tokens += [self._pending, *self._draft.tokens[: len(path)]]
        self._roll_back()

    def close(self) -> None:
        """Free the context."""
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
    def _missing(self) -> list[int]:
        """The last tokens of the text that are not in the cache, after a rollback."""
        return self.tokens[self._memory.length :]

    def _roll_back(self) -> None:
        """Remove the tokens of the last pass that are not part of the text."""
        if self._handle is None:
            raise LocalspecError("this context was closed; load the model again")
        self._memory.cut(len(self.tokens))

    def _evaluate_missing(self, most: int) -> None:
        """Evaluate the missing tokens if there are more than `most`."""
        if len(self._missing) > most:
            while self._missing:
                self._decode(self._missing[: self.chunk], wanted=1, width=self.least_rows)

    def _require_space(self, count: int) -> None:
        if len(self.tokens) + count > self.n_ctx:
            raise LocalspecError(f"the context of {self.n_ctx} tokens is full; use a larger one")

    def _decode(self, tokens: Sequence[int], *, wanted: int, width: int = 1) -> int:
        """Evaluate tokens at the end of the cache; returns the number of padding rows.

        wanted: the number of last tokens whose logits are computed. width: the least rows.
        """
        can_pad = self.rollback is Rollback.PARTIAL
        padding = max(0, width - len(tokens)) if can_pad else 0
        end = self._memory.length + len(tokens)
        self._batch.fill(
            tokens,
            start=end - len(tokens),
            wanted=wanted,
            padding=padding,
            # The last layers compute only the wanted rows, and choose kernels by their number.
            padding_wanted=self.least_rows > 1,
        )
        library.clear_log()
        self._memory.begin_pass()
        status = llama_cpp.llama_decode(self._handle, self._batch.struct)
        if status != 0:
            self._roll_back()
            raise LocalspecError(
                f"llama.cpp could not evaluate {len(tokens)} tokens (status {status}"
                f"{', ' + library.first_error() if library.first_error() else ''})"
            )
        self._memory.end_pass(len(tokens) + padding)
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
    """The library's parameters for a context; the arguments are those of Context."""
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = n_ctx
    params.n_batch = params.n_ubatch = CHUNK
    params.n_outputs_max = _MAX_OUTPUT_ROWS
    # Layers with a sliding window cache the window and one pass, not the whole text.
    params.swa_full = False
    # The library sets 0 for architectures without snapshots.
    params.n_rs_seq = snapshots
    params.n_threads = params.n_threads_batch = threads
    params.flash_attn_type = -1 if flash_attention is None else int(flash_attention)
    params.type_k = params.type_v = kv_type
    params.no_perf = True
    return params


def new_context(model: Model, params: Any) -> Any:
    """The library's context; the caller frees it. Raises ModelLoadError if it fails."""
    library.clear_log()
    handle = llama_cpp.llama_init_from_model(model.handle, params)
    if not handle:
        raise ModelLoadError(
            f"{model.path.name}: a context of {params.n_ctx} tokens cannot be made "
            f"({library.first_error() or 'no reason given'}); try a smaller one with --ctx"
        )
    return handle
