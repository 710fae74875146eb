"""Recent median: the median of the last few observations; one slow pass does not change it."""

from bisect import insort
from collections import deque

# The number of observations that count.
_REMEMBERED = 9
# With fewer observations, a single slow pass could be the median.
ENOUGH = 3


class RecentMedian:
    """The median of the last few observations."""

    __slots__ = ("_order", "_sorted")

    def __init__(self) -> None:
        self._order: deque[float] = deque()
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._order)

    def add(self, value: float) -> None:
        """Add an observation, and drop the oldest if there are too many."""
        self._order.append(value)
        insort(self._sorted, value)
        if len(self._order) > _REMEMBERED:
            self._sorted.remove(self._order.popleft())

    @property
    def least(self) -> float:
        """The least of the observations."""
        return self._sorted[0]

    @property
    def median(self) -> float:
        """The median; of an even number of observations, the smaller of the middle two."""
        return self._sorted[(len(self._sorted) - 1) // 2]
