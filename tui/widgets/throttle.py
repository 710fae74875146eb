"""Throttle: limits how often a growing widget is redrawn, so that the engine keeps its speed."""

import os
from collections.abc import Callable
from time import perf_counter, process_time

from textual.widget import Widget

_LEAST_DELAY, _MOST_DELAY = 0.05, 0.3
# How many times as long as it was drawn it is not: while there are idle cores, and while there are
# none. Then a drawing stops the engine, whose threads wait for each other.
_REST, _LONG_REST = 3, 24
_ALL_BUSY = 0.8
_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def delay(took: float, busy: float) -> float:
    """Seconds until the next drawing.

    took: seconds of the last one. busy: the share of the machine that this process took since.
    """
    if busy < _ALL_BUSY:
        return max(_LEAST_DELAY, _REST * took)
    return max(_LEAST_DELAY, _REST * took, min(_MOST_DELAY, _LONG_REST * took))


class Throttle:
    """draw: is called some time after `ask`, however often it was asked until then."""

    def __init__(self, widget: Widget, draw: Callable[[], None]) -> None:
        self._widget = widget
        self._draw = draw
        self._delay = _LEAST_DELAY
        self._drawing = False
        self._asked = False
        self._seen = perf_counter(), process_time()

    def ask(self) -> None:
        """There is something to be drawn; before the widget is mounted, nothing happens."""
        if self._drawing or not self._widget.is_attached:
            self._asked = True
            return
        self._drawing, self._asked = True, False
        self._widget.set_timer(self._delay, self._start)

    def _start(self) -> None:
        began = perf_counter()
        self._draw()
        # What the layout and the terminal take counts too.
        self._widget.call_after_refresh(self._end, began)

    def _end(self, began: float) -> None:
        now, worked = perf_counter(), process_time()
        before, worked_before = self._seen
        self._seen = now, worked
        busy = (worked - worked_before) / (now - before) / _CORES
        self._delay = delay(now - began, busy)
        self._drawing = False
        if self._asked:
            self.ask()
