"""Logits: the rows that the last decode of a context gave."""

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from localspec.llama.batch import split_rows
from localspec.speculation.passes import Pass


class Logits:
    """The logits of one context. handle: the library's. n_vocab: the tokens of a row."""

    def __init__(self, handle: Any, n_vocab: int) -> None:
        self._handle, self._n_vocab = handle, n_vocab
        # The array that was made last, and its address and rows.
        self._view, self._place = np.empty((0, n_vocab), np.float32), (0, 0)

    def rows(self, count: int) -> NDArray[np.float32]:
        """The first rows, (count, n_vocab) float32: a view, valid until the next decode."""
        if not count:
            return np.empty((0, self._n_vocab), np.float32)
        pointer = llama_cpp.llama_get_logits(self._handle)
        # Making an array of a pointer takes longer than all else here; the place rarely changes.
        place = ctypes.addressof(pointer.contents), count
        if place != self._place:
            self._view = np.ctypeslib.as_array(pointer, shape=(count, self._n_vocab))
            self._place = place
        return self._view

    def of_passes(
        self, passes: Sequence[Pass], lengths: Sequence[int], *, of_every_row: bool
    ) -> list[NDArray[np.float32]]:
        """The rows that each pass wanted: its last ones.

        lengths: the rows of each pass. of_every_row: whether the decode gave the logits of every
        row, not of those alone that were wanted.
        """
        wanted = [each.wanted for each in passes]
        if of_every_row:
            every = split_rows(self.rows(sum(lengths)), lengths)
            return [rows[len(rows) - count :] for rows, count in zip(every, wanted, strict=True)]
        found = self.rows(sum(wanted))
        return [found] if len(passes) == 1 else split_rows(found, wanted)
