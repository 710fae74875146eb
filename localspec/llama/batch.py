"""Batch: the input of one `llama_decode`, filled through numpy arrays that the library reads."""

import ctypes
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from localspec.errors import LocalspecError

# Of a rotation by sections (M-RoPE): time, height, width, and one that is not used.
SECTIONS = 4


class Batch:
    """An input of up to `size` rows, each of which belongs to one or several sequence ids.

    n_ids: the number of sequence ids of the context.
    """

    def __init__(self, size: int, n_ids: int = 1) -> None:
        self.size = size
        self._embeddings = np.zeros((size, 0), np.float32)
        self._tokens = np.zeros(size, np.int32)
        # Rows without a token have a position for each section of a rotation by sections.
        self._positions = np.zeros(SECTIONS * size, np.int32)
        self._id_counts = np.ones(size, np.int32)
        self._ids = np.zeros((size, n_ids), np.int32)
        row_bytes = self._ids.strides[0]
        self._id_rows = np.arange(size, dtype=np.uintp) * row_bytes + self._ids.ctypes.data
        self._wants_logits = np.zeros(size, np.int8)
        # Whether rows have tokens, and the width of their embeddings.
        self._kind = True, 0
        self.struct = llama_cpp.llama_batch()
        self.struct.token = _pointer(self._tokens, ctypes.c_int32)
        self.struct.pos = _pointer(self._positions, ctypes.c_int32)
        self.struct.n_seq_id = _pointer(self._id_counts, ctypes.c_int32)
        self.struct.seq_id = _pointer(self._id_rows, ctypes.POINTER(ctypes.c_int32))
        self.struct.logits = _pointer(self._wants_logits, ctypes.c_int8)

    def __len__(self) -> int:
        return int(self.struct.n_tokens)

    def clear(self, *, tokens: bool = True, width: int = 0) -> None:
        """Remove all rows. tokens: whether the rows to come have a token each.

        width: how many numbers the embedding of each has; 0: they have none.
        """
        self.struct.n_tokens = 0
        if self._kind == (tokens, width):
            return
        self._kind = tokens, width
        self._embeddings = np.zeros((self.size, width), np.float32)
        struct: Any = self.struct
        struct.token = _pointer(self._tokens, ctypes.c_int32) if tokens else None
        struct.embd = _pointer(self._embeddings, ctypes.c_float) if width else None

    def add(
        self,
        tokens: Sequence[int],
        *,
        start: int,
        seq_id: int,
        wanted: int,
        embeddings: NDArray[np.float32] | None = None,
    ) -> None:
        """Add a row for each token, at positions start, start + 1, ... of one sequence id.

        wanted: the number of last rows whose logits are needed. embeddings: (rows, width), beside
        the tokens or instead of them; None: zeros, if the batch has embeddings.
        """
        first, end = self._grow(len(tokens) if embeddings is None else len(embeddings))
        if tokens:
            self._tokens[first:end] = tokens
        if self._embeddings.shape[1]:
            self._embeddings[first:end] = 0 if embeddings is None else embeddings
        self._positions[first:end] = range(start, start + end - first)
        self._id_counts[first:end] = 1
        self._ids[first:end, 0] = seq_id
        self._wants_logits[first : end - wanted] = False
        self._wants_logits[end - wanted : end] = True

    def add_row(
        self, token: int, *, position: int, seq_ids: Sequence[int], wanted: bool = True
    ) -> None:
        """Add a row of a tree, which belongs to the ids of all branches through it.

        wanted: whether its logits are needed.
        """
        row, _ = self._grow(1)
        self._tokens[row] = token
        self._positions[row] = position
        self._id_counts[row] = len(seq_ids)
        self._ids[row, : len(seq_ids)] = seq_ids
        self._wants_logits[row] = wanted

    def want_all_logits(self) -> None:
        """Ask for the logits of every row."""
        self._wants_logits[: int(self.struct.n_tokens)] = True

    def set_sections(self, positions: NDArray[np.int32]) -> None:
        """Give the rows, all of them without tokens, positions of their own.

        positions: (sections, rows), of a rotation by sections.
        """
        self._positions[: positions.size] = positions.ravel()

    def repeat_positions(self) -> None:
        """Give all sections of rows without tokens the positions of a text; add no row after."""
        count = int(self.struct.n_tokens)
        sections = self._positions[: SECTIONS * count].reshape(SECTIONS, count)
        sections[1:-1], sections[-1] = sections[0], 0

    def _grow(self, count: int) -> tuple[int, int]:
        first = int(self.struct.n_tokens)
        self.struct.n_tokens = first + count
        return first, first + count


def _pointer(array: np.ndarray, kind: Any) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(kind))


def split_rows(rows: NDArray[np.float32], lengths: Sequence[int]) -> list[NDArray[np.float32]]:
    """Split rows into parts of these lengths."""
    ends = list(accumulate(lengths))
    return [rows[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def require_at_most(count: int, most: int, what: str) -> None:
    """Raise LocalspecError if a batch would have more of something than its context allows."""
    if count > most:
        raise LocalspecError(f"a decode of {count} {what} was asked for; {most} are the most")
