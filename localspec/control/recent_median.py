"""Recent median: the median of the last few observations, which one slow pass cannot move."""

from bisect import insort
from collections import deque

# The last so many observations count.
_REMEMBERED = 9
# Before so many, a single slow pass would count.
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
        """One more; the oldest of too many goes."""
        self._order.append(value)
        insort(self._sorted, value)
        if len(self._order) > _REMEMBERED:
            self._sorted.remove(self._order.popleft())

    @property
    def median(self) -> float:
        """The middle one; with an even number of them the smaller."""
        return self._sorted[(len(self._sorted) - 1) // 2]
