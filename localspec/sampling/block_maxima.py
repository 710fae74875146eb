"""Block maxima: the largest logits of a row, found without reading the whole row again."""

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float32]
Ids = NDArray[np.intp]

# Entries per block. Blocks are interleaved, so neighbouring tokens are in different ones.
_BLOCK_SIZE = 32
# Where more than this share of the blocks has large entries, the whole row is compared.
_MOST_BLOCKS = 0.1


class BlockMaxima:
    """The largest logit of each block of a row; making it reads the row once.

    row: (n,) float32, not modified, n >= 1.
    top: the largest logit; NaN if the row has a NaN.

    A row of a large vocabulary is half a megabyte: reading it, and allocating arrays as long as it,
    is most of what sampling costs.
    """

    __slots__ = ("_blocks", "_maxima", "_rest", "_row", "top")

    def __init__(self, row: Row) -> None:
        self._row = row
        count = row.size // _BLOCK_SIZE
        # Column i is a block; the entries of the last columns, fewer than a block, are the rest.
        self._blocks = row[: count * _BLOCK_SIZE].reshape(_BLOCK_SIZE, count)
        self._rest = row[count * _BLOCK_SIZE :]
        self._maxima = self._blocks.max(axis=0)
        tops = [part.max() for part in (self._maxima, self._rest) if part.size]
        self.top: np.float32 = tops[0] if len(tops) == 1 else np.maximum(*tops)

    def at_least(self, bound: np.floating) -> Ids:
        """The ids of the entries that are at least `bound`, ascending. bound: no NaN."""
        (alive,) = (self._maxima >= bound).nonzero()
        if alive.size > _MOST_BLOCKS * self._maxima.size:
            return (self._row >= bound).nonzero()[0]
        rows, columns = (self._blocks[:, alive] >= bound).nonzero()
        rows *= self._maxima.size
        rows += alive[columns]
        if not self._rest.size:
            return rows
        return np.concatenate([rows, self._blocks.size + (self._rest >= bound).nonzero()[0]])

    def count_blocks(self, bound: np.floating) -> int:
        """The number of blocks with an entry of at least `bound`."""
        return int(np.count_nonzero(self._maxima >= bound))

    def largest(self, k: int) -> tuple[Row, Ids]:
        """The k largest entries and their ids, largest first; of equal ones, the lower id first.

        The k-th largest maximum is a lower bound of the k-th largest entry.
        """
        count = self._maxima.size
        if count <= k:
            return _sorted(self._row, np.arange(self._row.size), k)
        partitioned = self._maxima.copy()
        partitioned.partition(count - k)
        ids = self.at_least(partitioned[count - k])
        return _sorted(self._row[ids], ids, k)


def _sorted(values: Row, ids: Ids, k: int) -> tuple[Row, Ids]:
    order = (-values).argsort(kind="stable")[:k]
    return values[order], ids[order]
