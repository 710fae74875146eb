"""Slow changes: passes that take longer behind passes of other rows, as on a GPU."""

from collections.abc import Callable, Sequence


class SlowChanges:
    """Seconds of passes, one after the other.

    steady: seconds by rows, behind passes as wide. more: seconds that the first passes behind a
    change take longer, the first one first.
    """

    def __init__(self, steady: Callable[[int], float], more: Sequence[float]) -> None:
        self._steady, self._more = steady, more
        self._last = self._since = 0

    def __call__(self, rows: int) -> float:
        self._since = self._since + 1 if rows == self._last else 0
        self._last = rows
        return self._steady(rows) + (
            self._more[self._since] if self._since < len(self._more) else 0
        )
