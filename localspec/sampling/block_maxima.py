"""Block maxima: the largest logits of a row, found without reading the whole row again."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float32]
Ids = NDArray[np.intp]

# The least entries of a block, and the most blocks: finding the maxima of more takes longer, as
# beside the row they do not fit the processor's nearest cache.
_LEAST_SIZE = 32
_MOST_BLOCKS = 2400
# Where more than this share of the blocks has large entries, the whole row is compared.
_MOST_ALIVE = 0.1
# To find the k largest entries, blocks are put into so many groups for each of them.
_GROUPS = 6
_NONE = np.float32(-np.inf)
# Quicker than the method `max`, which calls it.
_maximum = np.maximum.reduce


def likeliest(values: Row, ids: Ids, k: int) -> tuple[Row, Ids]:
    """The k largest of these entries, largest first; of equal ones, the lower id first.

    ids: ascending.
    """
    order = (-values).argsort(kind="stable")[:k]
    return values.take(order), ids.take(order)


class Candidates(NamedTuple):
    """All entries of a row that are at least `bound`, by id."""

    logits: Row
    ids: Ids
    bound: np.floating


class BlockMaxima:
    """The largest logit of each block of a row; making it reads the row once.

    row: (n,) float32, not modified, n >= 1; kept as `entries`.
    top: the largest logit; NaN if the row has a NaN.

    A row of a large vocabulary is half a megabyte: reading it, and allocating arrays as long as it,
    is most of what sampling costs.
    """

    __slots__ = ("_blocks", "_maxima", "_rest", "entries", "top")

    def __init__(self, row: Row) -> None:
        self.entries = row
        count = max(1, row.size // _LEAST_SIZE)
        while count > _MOST_BLOCKS:
            count //= 2
        # Column i is a block, so neighbouring tokens are in different ones. The rest are entries
        # behind the last whole row.
        whole = row.size - row.size % count
        self._blocks = row[:whole].reshape(-1, count)
        self._rest = row[whole:]
        self._maxima = _maximum(self._blocks, axis=0)
        top = _maximum(self._maxima)
        self.top: np.float32 = np.maximum(top, _maximum(self._rest)) if self._rest.size else top

    def at_least(self, bound: np.floating) -> Ids:
        """The ids of the entries that are at least `bound`, ascending. bound: no NaN."""
        return self.found(bound)[1]

    def count_beside(self, bound: np.floating) -> int:
        """The number of entries in blocks that have one of at least `bound`."""
        return int(np.count_nonzero(self._maxima >= bound)) * len(self._blocks)

    def has_more(self, count: int, bound: np.floating) -> bool:
        """Whether more than `count` entries are at least `bound`."""
        return (
            self.count_beside(bound) > count
            and int(np.count_nonzero(self.entries >= bound)) > count
        )

    def largest(self, k: int, least: np.floating = _NONE) -> tuple[Row, Ids]:
        """The k largest entries and their ids, largest first; of equal ones, the lower id first.

        Only the largest, if no other one is at least `least`.
        """
        if self._maxima.size <= k:
            values, ids = self.entries, np.arange(self.entries.size)
        else:
            tops = self._tops_of_groups(k)
            # One group alone has such entries: where a model is sure, this is the usual case.
            if tops[-2] < least:
                values, ids = self.found(least)
                if ids.size == 1:
                    return values, ids
            values, ids = self.found(tops[-k])
        return likeliest(values, ids, k)

    def candidates(self, k: int, least: np.floating) -> Candidates:
        """Entries among which are all of the k largest that are at least `least`."""
        if np.count_nonzero(self._maxima >= least) > k:
            least = max(least, self._tops_of_groups(k)[-k])
        return Candidates(*self.found(least), least)

    def _tops_of_groups(self, k: int) -> Row:
        """The largest entries of at least k groups of blocks, ascending.

        The k-th largest of them is a lower bound of the k-th largest entry, and seldom much lower,
        as there are several groups for each of the k. So few are sorted sooner than all blocks are
        partitioned.
        """
        size = self._maxima.size
        together = max(1, size // (_GROUPS * k))
        groups = self._maxima[: size // together * together].reshape(together, -1)
        tops: Row = _maximum(groups, axis=0)
        tops.sort()
        return tops

    def found(self, bound: np.floating) -> tuple[Row, Ids]:
        """The entries that are at least `bound`, and their ids, ascending. bound: no NaN."""
        level = np.array(bound)  # quicker to compare with than a scalar
        (alive,) = (self._maxima >= level).nonzero()
        if alive.size > _MOST_ALIVE * self._maxima.size:
            ids = (self.entries >= bound).nonzero()[0]
            return self.entries.take(ids), ids
        entries = self._blocks.take(alive, axis=1).ravel()
        (found,) = (entries >= level).nonzero()
        values, ids = entries.take(found), self._ids(found, alive)
        if not self._rest.size:
            return values, ids
        (found,) = (self._rest >= bound).nonzero()
        ids = np.concatenate([ids, self._blocks.size + found])
        return np.concatenate([values, self._rest.take(found)]), ids

    def _ids(self, entries: Ids, columns: Ids) -> Ids:
        """The ids of these entries of these columns, taken row by row."""
        if not entries.size:
            return entries
        rows, places = np.divmod(entries, columns.size)
        rows *= self._maxima.size
        rows += columns.take(places)
        return rows
