"""Throttle: limits how often a growing widget is redrawn, so that the engine keeps its speed."""

from collections.abc import Callable

from textual.widget import Widget

from localspec.utils.busy_cores import BusyCores
from localspec.utils.running_clock import running_clock

# From this share of all cores on, no core is left for the screen.
BUSY = 0.8
_MIN_DELAY, _MAX_DELAY = 0.05, 1.0
# The delay as a multiple of the last drawing time: with idle cores, and without. Without idle cores
# a drawing delays all compute threads of the engine, because they wait for each other.
_FACTOR, _BUSY_FACTOR = 3, 100


def delay(drawing_seconds: float, busy_share: float) -> float:
    """Seconds to wait before the next drawing.

    drawing_seconds: of the last one. busy_share: how much of all cores was used since the one
    before, from 0 to 1.
    """
    if busy_share < BUSY:
        return max(_MIN_DELAY, _FACTOR * drawing_seconds)
    busy_delay = min(_MAX_DELAY, _BUSY_FACTOR * drawing_seconds)
    return max(_MIN_DELAY, _FACTOR * drawing_seconds, busy_delay)


class Throttle:
    """draw: called once after one or several calls of `request`."""

    def __init__(self, widget: Widget, draw: Callable[[], None]) -> None:
        self._widget = widget
        self._draw = draw
        self._delay = _MIN_DELAY
        self._is_scheduled = False
        self._is_requested = False
        # Most widgets never grow after they are mounted.
        self._busy_cores: BusyCores | None = None

    def request(self) -> None:
        """Have the widget drawn soon. Before it is mounted, nothing is drawn."""
        if self._is_scheduled or not self._widget.is_attached:
            self._is_requested = True
            return
        self._is_scheduled, self._is_requested = True, False
        self._busy_cores = self._busy_cores or BusyCores()
        self._widget.set_timer(self._delay, self._start)

    def _start(self) -> None:
        started = running_clock()
        self._draw()
        # The time of the layout and of the terminal counts too.
        self._widget.call_after_refresh(self._end, started)

    def _end(self, started: float) -> None:
        share = self._busy_cores.share() if self._busy_cores else 0.0
        self._delay = delay(running_clock() - started, share)
        self._is_scheduled = False
        if self._is_requested:
            self.request()
