"""Progress of `localspec trim`: what it measures, and how long that takes."""

from time import monotonic

from localspec.cli.output import Output
from localspec.cli.status_line import StatusLine
from localspec.utils.format import format_seconds

# Less than this is no wait that needs a line of its own.
_SHORT = 2.0


class TrimProgress:
    """Shows how far it is. texts: how many the target writes in all, to count and to measure."""

    def __init__(self, output: Output, line: StatusLine, texts: int) -> None:
        self._output, self._line, self._texts = output, line, texts
        self._done, self._began, self._phase = 0, 0.0, ""

    def enter(self, phase: str) -> None:
        """Begin to write texts. phase: what for."""
        self._phase = phase
        self._began = self._began or monotonic()
        self._show("")

    def __call__(self) -> None:
        """Count a text that was written; after the first one, say how long all of them take."""
        self._done += 1
        left = (self._texts - self._done) * (monotonic() - self._began) / self._done
        if self._done == 1 and left > _SHORT:
            self._output.note(
                f"the target writes {self._texts} texts in all: about {format_seconds(left)} left"
            )
        self._show(f", {format_seconds(left)} left")

    def _show(self, left: str) -> None:
        self._line.show(f"{self._phase}: {self._done} of {self._texts} texts{left}")
