"""Embedder: a model that makes a vector of a text, or a score of a query with a document."""

import ctypes
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from localspec.errors import LocalspecError
from localspec.gguf.check import ranks, reads_in_pieces
from localspec.gguf.reader import Header
from localspec.llama.batch import Batch
from localspec.llama.computation import compute
from localspec.llama.compute_thread import OwnThread
from localspec.llama.context_params import CHUNK
from localspec.llama.library_context import free_context, new_context
from localspec.llama.model import Model
from localspec.llama.placement import DEFAULT, LOAD_MODES, Placement
from localspec.utils.closing import Closing

# Narrower passes have other digits on a processor: alone, a short text would have another vector.
_LEAST_ROWS = 64
# The sequence ids of a pass, of which the last is for what makes it wider. The library ends the
# process where the rows of a pass are no multiple of them (mean pooling, `graph_reserve`).
_IDS = 64
_TEXTS = _IDS - 1
# Read, not mapped: what a mapped file takes of main memory counts as free.
_LOAD_MODE = LOAD_MODES[1]
# Whether a number is not 0, as a function of Python that the library calls after each operation of
# a pass: one written in Python would wait for Python's lock as often.
_IS_SET = ctypes.cast(ctypes.pythonapi.PyThread_tss_is_created, llama_cpp.ggml_abort_callback)
# The library's status of a pass that was ended so.
_ENDED = 2


class Embedder(Closing):
    """A loaded embedding model, with its context.

    header: of the file at `path`, as `gguf.check` has checked it. n_ctx: the most tokens of a text.
    thread: that computes its passes beside those of other models, and in which its methods are
    called.

    width: how many numbers a vector has; 1 where it `ranks`.
    """

    def __init__(
        self,
        path: Path,
        header: Header,
        n_ctx: int,
        placement: Placement = DEFAULT,
        *,
        threads: int = 1,
        thread: OwnThread | None = None,
    ) -> None:
        self._threads, self.ranks = threads, ranks(header)
        self.model = Model(path, placement, load_mode=_LOAD_MODE)
        self.model.thread = thread
        values = llama_cpp.llama_context_default_params()
        values.n_ctx = values.n_batch = most = max(-(-n_ctx // _IDS) * _IDS, CHUNK)
        values.n_ubatch = self._piece = CHUNK if reads_in_pieces(header) else most
        values.n_seq_max = _IDS
        values.kv_unified = values.embeddings = values.no_perf = True
        values.n_threads = values.n_threads_batch = threads
        self._handle: Any = None
        self._ends = (ctypes.c_int * 4)()  # as large as what Python reads there
        try:
            self._handle = new_context(self.model, values)
            llama_cpp.llama_set_abort_callback(self._handle, _IS_SET, ctypes.addressof(self._ends))
            self._memory = llama_cpp.llama_get_memory(self._handle)
            # What keeps no cache computes a text at once.
            self.n_ctx = n_ctx if self._memory else min(n_ctx, self._piece)
            self._batch = Batch(self._piece)
            self._take_memory()
        except BaseException:
            self.close()
            raise
        handle = self.model.handle
        count = llama_cpp.llama_model_n_cls_out if self.ranks else llama_cpp.llama_model_n_embd_out
        self._row = int(count(handle))
        self.width = 1 if self.ranks else self._row

    def shortened(self, tokens: list[int]) -> list[int]:
        """The beginning of a text of too many tokens, with the special token of its end."""
        frame = self.model.tokenize("")
        end = frame[-1:] if frame[-1:] == tokens[-1:] else []
        return tokens if len(tokens) <= self.n_ctx else tokens[: self.n_ctx - len(end)] + end

    def pair(self, query: str, document: str) -> list[int]:
        """The tokens of a query and a document to be ranked."""
        model, vocab = self.model, llama_cpp.llama_model_get_vocab(self.model.handle)
        template = llama_cpp.llama_model_chat_template(model.handle, b"rerank")
        if template:
            before, mark, after = template.decode("utf-8", "replace").partition("{document}")
            text = before.replace("{query}", query) + (document if mark else "")
            return model.tokenize(text + after.replace("{query}", query), add_special=False)
        sep = int(llama_cpp.llama_vocab_sep(vocab))
        ends = [model.eos if model.eos >= 0 else sep] * model.adds_eos
        middle = [sep] * bool(llama_cpp.llama_vocab_get_add_sep(vocab))
        first, second = (
            model.tokenize(text, add_special=False, parse_special=False)
            for text in (query, document)
        )
        return [model.bos] * model.adds_bos + first + ends + middle + second + ends

    @staticmethod
    def batches(texts: Sequence[list[int]]) -> Iterator[Sequence[list[int]]]:
        """Texts as `vectors` takes them: many short ones, or a long one."""
        batch: list[list[int]] = []
        for text in texts:
            if batch and (sum(map(len, batch)) + len(text) > CHUNK or len(batch) == _TEXTS):
                yield batch
                batch = []
            batch.append(text)
        if batch:
            yield batch

    def vectors(self, texts: Sequence[list[int]]) -> NDArray[np.float32]:
        """(texts, width): the vectors or scores of a batch of texts, as the model computes them.

        Raises LocalspecError, DeviceError where the device fails, and WorkerError.
        """
        for start in range(0, max(map(len, texts)), self._piece):
            if start == 0 and self._memory:
                llama_cpp.llama_memory_clear(self._memory, False)
            self._batch.clear()
            for number, text in enumerate(texts):
                piece = text[start : start + self._piece]
                self._batch.add(piece, start=start, seq_id=number, wanted=len(piece))
            self._fill_up(texts[0][0])
            self._compute()
        found = np.stack([self._pooled(number) for number in range(len(texts))])
        if not np.isfinite(found).all():
            if self._memory:
                llama_cpp.llama_memory_clear(self._memory, True)
            raise LocalspecError(f"{self.model.path.name} computes what is no number")
        return found

    def _take_memory(self) -> None:
        """Have the library take the memory of a long text, which it does at the first one.

        What is loaded next is planned with what is free then. On a processor the pass ends after
        its first operation.
        """
        self._ends[0] = 1
        rows = min(self._piece, self.n_ctx)
        self._batch.add([0] * rows, start=0, seq_id=0, wanted=rows)
        self._compute()
        self._ends[0] = 0

    def _fill_up(self, token: int) -> None:
        """Add a text of one token again and again, if the pass is a narrow one."""
        if (lacking := min(_LEAST_ROWS - len(self._batch), self.n_ctx)) > 0:
            self._batch.add([token] * lacking, start=0, seq_id=_TEXTS, wanted=lacking)

    def _compute(self) -> None:
        rows = len(self._batch)

        def decode() -> int:
            status = int(llama_cpp.llama_decode(self._handle, self._batch.struct))
            return 0 if status == _ENDED and self._ends[0] else status

        compute(
            decode,
            self.model,
            self._handle,
            rows=rows,
            kind=(type(self), self.model.path, rows, self._ends[0]),
            threads=self._threads,
        )

    def _pooled(self, number: int) -> NDArray[np.float32]:
        pointer = llama_cpp.llama_get_embeddings_seq(self._handle, number)
        if not pointer:
            raise LocalspecError(f"{self.model.path.name} gives no embedding of a text")
        return np.ctypeslib.as_array(pointer, shape=(self._row,))[: self.width].copy()

    def stop(self) -> None:
        """End the pass that is computed on a processor, and all later ones; from any thread."""
        self._ends[0] = 1

    def close(self) -> None:
        """Free it; its thread goes on."""
        handle, self._handle = self._handle, None
        free_context(handle)
        self.model.thread = None
        self.model.close()
