"""Phase times: how long each phase of a training takes."""

from time import monotonic


class PhaseTimes:
    """Adds up the time between calls by phase."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._phase, self._since = "", monotonic()

    def enter(self, phase: str) -> None:
        """A phase begins, or goes on."""
        self._add()
        self._phase = phase

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds of each phase so far, in their order."""
        self._add()
        return dict(self._seconds)

    def _add(self) -> None:
        now = monotonic()
        if self._phase:
            self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + now - self._since
        self._since = now
