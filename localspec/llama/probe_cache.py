"""Probe cache: a small KV cache of a model for a few texts, to try out how the library computes."""

from collections.abc import Sequence

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from localspec.errors import LocalspecError
from localspec.llama.batch import Batch
from localspec.llama.context_params import ContextParams
from localspec.llama.library_context import free_context, library_params, new_context
from localspec.llama.model import Model
from localspec.llama.state import Copy, pointer_to
from localspec.utils.closing import Closing

# The texts, as the library's sequence ids: the one that is tried, and others beside it.
OWN, OTHER, THIRD = 0, 1, 2
_ROWS = 64
_EVERYTHING = 0

# Rows of a pass: a text and its tokens.
Rows = tuple[int, Sequence[int]]


class ProbeCache(Closing):
    """Three texts in one unified KV cache of `n_ctx` tokens; close it (or use `with`).

    Raises ModelLoadError if there is no memory for it.
    """

    def __init__(self, model: Model, params: ContextParams) -> None:
        values = library_params(params)
        values.n_batch = values.n_ubatch = values.n_outputs_max = _ROWS
        values.n_seq_max = 3
        self._handle = new_context(model, values)
        self._memory = llama_cpp.llama_get_memory(self._handle)
        self._n_vocab = model.n_vocab
        self._batch = Batch(_ROWS)

    def evaluate(self, *parts: Rows) -> NDArray[np.float32]:
        """Compute one pass; returns the logits of all rows, (rows, n_vocab) float32: a view.

        Raises LocalspecError if the library cannot compute it.
        """
        self._batch.clear()
        for text, tokens in parts:
            self._batch.add(tokens, start=self._end(text), seq_id=text, wanted=len(tokens))
        rows = len(self._batch)
        if status := llama_cpp.llama_decode(self._handle, self._batch.struct):
            raise LocalspecError(f"a trial pass of {rows} rows failed (status {status})")
        pointer = llama_cpp.llama_get_logits(self._handle)
        return np.ctypeslib.as_array(pointer, shape=(rows, self._n_vocab))

    def copy(self) -> Copy:
        """A copy of the cells of the own text."""
        size = llama_cpp.llama_state_seq_get_size_ext(self._handle, OWN, _EVERYTHING)
        copy = np.empty(size, np.uint8)
        llama_cpp.llama_state_seq_get_data_ext(
            self._handle, pointer_to(copy), size, OWN, _EVERYTHING
        )
        return copy

    def put(self, copy: Copy, text: int) -> bool:
        """Replace a text's cells by a copy; returns whether there was room."""
        read = llama_cpp.llama_state_seq_set_data_ext(
            self._handle, pointer_to(copy), copy.size, text, _EVERYTHING
        )
        return bool(read == copy.size)

    def double(self) -> bool:
        """Give the own text a second cell for each of its tokens; False if there is no room.

        So a long text is had without evaluating it. Its logits mean nothing, but the library
        computes them as those of any text of that length.
        """
        if not self.put(self.copy(), OTHER):
            return False
        llama_cpp.llama_memory_seq_cp(self._memory, OTHER, OWN, -1, -1)
        return bool(llama_cpp.llama_memory_seq_rm(self._memory, OTHER, -1, -1))

    def remove(self, text: int) -> None:
        """Remove a text, whose cells stay free where they are."""
        llama_cpp.llama_memory_seq_rm(self._memory, text, -1, -1)

    def clear(self) -> None:
        """Empty the cache."""
        llama_cpp.llama_memory_clear(self._memory, False)

    def close(self) -> None:
        """Free the cache."""
        handle, self._handle = self._handle, None
        free_context(handle)

    def _end(self, text: int) -> int:
        return int(llama_cpp.llama_memory_seq_pos_max(self._memory, text)) + 1
