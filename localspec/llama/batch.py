"""Batch: the input of one `llama_decode`, filled through numpy views of the library's arrays."""

from collections.abc import Sequence

import llama_cpp
import numpy as np


class Batch:
    """An input of up to `size` tokens of one sequence. Close it."""

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
        """Put tokens at positions start, start + 1, ...; ask for the logits of the last `wanted`.

        padding: the number of rows added behind the tokens, at the following positions.
        padding_wanted: ask for the logits of these rows too, which nobody reads: then the last
        layers compute every row with the same kernels.
        """
        n, width = len(tokens), len(tokens) + padding
        self.struct.n_tokens = width
        self._tokens[:n] = tokens
        self._tokens[n:width] = tokens[-1]
        self._positions[:width] = range(start, start + width)
        self._wants_logits[:width] = False
        self._wants_logits[n - wanted : width if padding_wanted else n] = True

    def close(self) -> None:
        """Free the structure, which must not be used afterwards."""
        llama_cpp.llama_batch_free(self.struct)
