"""Aside: work for one text that can be done while its pass is computed, so that nobody waits."""

from collections.abc import Callable


class Aside:
    """Some work that is done once: by whoever computes the pass, or else by the text itself."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work: Callable[[], object] | None = work
        self._error: Exception | None = None

    def do(self) -> None:
        """Do it, unless it was begun before. What it raises is raised by `end`."""
        work, self._work = self._work, None
        if work:
            try:
                work()
            except Exception as error:
                self._error = error

    def end(self) -> None:
        """Do it if nobody has, and raise what it raised. Called when the pass is computed."""
        self.do()
        if self._error:
            try:
                raise self._error
            finally:
                self._error = None  # its traceback refers to this
