"""Batch: the library's input structure, filled through numpy views of its own arrays."""

from collections.abc import Sequence

import llama_cpp
import numpy as np


class Batch:
    """Room for `size` tokens of one sequence."""

    def __init__(self, size: int) -> None:
        self.struct = llama_cpp.llama_batch_init(size, 0, 1)
        self._tokens = np.ctypeslib.as_array(self.struct.token, shape=(size,))
        self._positions = np.ctypeslib.as_array(self.struct.pos, shape=(size,))
        self._wants_logits = np.ctypeslib.as_array(self.struct.logits, shape=(size,))
        np.ctypeslib.as_array(self.struct.n_seq_id, shape=(size,))[:] = 1
        for i in range(size):
            self.struct.seq_id[i][0] = 0
        self._size = size

    def fill(
        self,
        tokens: Sequence[int],
        *,
        start: int,
        wanted: int,
        padding: int,
        padding_wanted: bool = False,
    ) -> None:
        """Tokens at positions start, start + 1, ...; logits for the last `wanted` of them.

        padding: so many more rows follow, of any token. padding_wanted: with logits that nobody
        reads, so that the pass is the same up to its end.
        """
        n, width = len(tokens), len(tokens) + padding
        self.struct.n_tokens = width
        self._tokens[:n] = tokens
        self._tokens[n:width] = tokens[-1]
        self._positions[:width] = range(start, start + width)
        self._wants_logits[:width] = False
        self._wants_logits[n - wanted : width if padding_wanted else n] = True

    def close(self) -> None:
        """Free it; the structure must not be used again."""
        llama_cpp.llama_batch_free(self.struct)
