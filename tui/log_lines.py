"""Log lines: what localspec logs, for the screen to show."""

import logging
from collections import deque


class LogLines(logging.Handler):
    """Collects log messages of localspec, from any thread, between `attach` and `detach`."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._lines: deque[str] = deque()
        self._logger = logging.getLogger("localspec")
        self._level = self._logger.level

    def attach(self) -> None:
        """Start to collect."""
        self._logger.addHandler(self)
        self._logger.setLevel(logging.INFO)

    def detach(self) -> None:
        """Stop collecting."""
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level)

    def emit(self, record: logging.LogRecord) -> None:
        """Collect one message; `logging` calls this."""
        self._lines.append(record.getMessage())

    def drain(self) -> list[str]:
        """The messages since the last call, in order."""
        return [self._lines.popleft() for _ in range(len(self._lines))]
