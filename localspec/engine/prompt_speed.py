"""Prompt speed: how many tokens of a prompt the target reads in a given time, as measured."""

# The weight of the newest value in the moving average.
_NEWEST = 0.25


class PromptSpeed:
    """Seconds per row of prompt passes, of the largest model: drafters read prompts too."""

    def __init__(self) -> None:
        self._size = 0
        self._row_seconds = 0.0

    def learn(self, size: int, rows: int, seconds: float) -> None:
        """Learn from a decode of prompt passes. size: of the model."""
        if size < self._size:
            return
        each, known = seconds / rows, self._row_seconds if size == self._size else 0.0
        self._size = size
        self._row_seconds = known + _NEWEST * (each - known) if known else each

    def rows_within(self, seconds: float) -> int:
        """How many rows take so long; 0 before the first pass."""
        return int(seconds / self._row_seconds) if self._row_seconds else 0
