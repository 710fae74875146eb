"""Running clock: seconds in which this process was not stopped, as by Ctrl-Z in a shell.

No clock of the system stands still meanwhile, and none tells when a process was stopped. So what
has passed since this clock was last read is left out once the process goes on, and with it what was
computed since then: a part of one step.
"""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

# A thread that has read no clock for so many seconds may come back from a stop, of which the main
# thread has not heard yet: it gets so many seconds for that.
_LONG, _MOMENT = 1.0, 0.005


class RunningClock:
    """Returns the time in seconds. now: the system's clock."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._read = now()
        self._left_out = 0.0
        self._follows = False
        # What handled SIGCONT before, or one of the constants of `signal`.
        self._before: object = None

    def __call__(self) -> float:
        if self._follows and self._now() - self._read > _LONG and not _in_main_thread():
            time.sleep(_MOMENT)
        while True:
            left_out = self._left_out
            now = self._now()
            if left_out == self._left_out:  # else the process was stopped in between
                self._read = max(self._read, now)
                return now - left_out

    def leave_out(self) -> None:
        """Leave out what has passed since the clock was last read."""
        now = self._now()
        self._left_out += now - self._read
        self._read = now

    def follow_stops(self) -> None:
        """From now on leave stops out; whoever handles SIGCONT already still does.

        Where there is none, as on Windows, and in other threads than the main one, stops count.
        """
        if not hasattr(signal, "SIGCONT") or not _in_main_thread():
            return
        before = signal.getsignal(signal.SIGCONT)
        if before != self._continued:
            self._before, self._follows = before, True
            signal.signal(signal.SIGCONT, self._continued)

    def _continued(self, number: int, frame: FrameType | None) -> None:
        self.leave_out()
        if callable(self._before):
            self._before(number, frame)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


running_clock = RunningClock()
