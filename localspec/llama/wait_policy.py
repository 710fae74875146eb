"""Wait policy: how long the library's threads wait for each other actively before they sleep.

The threads of a pass meet at a barrier behind each operation, hundreds of times. GNU's OpenMP lets
those that are early spin for some milliseconds. That is the quickest way while each thread has a
core to itself: none has to be woken. But where other programs compute on all cores, a thread that
spins keeps its core from the one that all wait for, and a pass can take ten times as long as where
threads soon sleep. Which of the two is quicker is found out while text is written, by passes of
both kinds. It changes no digit: the same threads compute the same rows.
"""

import math
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cache
from statistics import fmean

from localspec.llama.wait_switch import WaitSwitch, wait_switch
from localspec.utils.busy_cores import BUSY, BusyCores, allowed_cores
from localspec.utils.running_clock import running_clock

# The least seconds between two looks at what other programs use.
_BETWEEN_LOOKS = 0.5
# Passes in either way that are compared, the latest ones: now and then one takes many times as long
# as the others, and that is the point. So many are needed of each way.
_LATEST, _LEAST = 24, 6
# The other way is tried again after so many seconds, or after so many times what its passes took.
_SECONDS, _SHARE = 60.0, 20
# After so many seconds in which all passes found room, waits are long.
_ROOMY = 5.0
# Short waits must save this share of the time.
_GAIN = 0.1


class WaitPolicy:
    """Lets the threads of passes wait shortly where that is quicker; one object per process.

    switch: makes waits short, or long again; None where the library has no such choice. cores:
    measures what other programs use of so many `core_count`. short_passes: how many passes had
    short waits.
    """

    def __init__(
        self,
        switch: WaitSwitch | None,
        cores: BusyCores | None = None,
        core_count: int | None = None,
        clock: Callable[[], float] = running_clock,
    ) -> None:
        self.short_passes = 0
        self._switch = switch
        self._cores = cores or BusyCores()
        self._core_count = core_count or len(allowed_cores())
        self._clock = clock
        self._looked, self._busy = clock(), 0.0
        # When a pass last found too little room.
        self._crowded = -math.inf
        self._times = _WaitTimes()
        # The passes that have begun, and those that have not ended: two models may compute at once.
        self._begun = self._running = 0
        self._lock = threading.Lock()

    @contextmanager
    def during(self, kind: Hashable, threads: int) -> Iterator[None]:
        """Run one pass. kind: passes of a kind take equally long. threads: those of the pass."""
        if self._switch is None or threads < 2:
            yield
            return
        with self._lock:
            kind = (kind, threads)
            tells = self._choose(self._switch, kind, threads) and not self._running
            short, began = self._switch.is_short, self._clock()
            self.short_passes += short
            self._begun += 1
            self._running += 1
            number = self._begun
        ended = False
        try:
            yield
            ended = True
        finally:
            with self._lock:
                self._running -= 1
                if ended and tells and number == self._begun:
                    self._times.add(kind, short, self._clock() - began)

    def _choose(self, switch: WaitSwitch, kind: Hashable, threads: int) -> bool:
        """Make waits long or short for a pass; return whether its time tells something."""
        now = self._clock()
        if now - self._looked >= _BETWEEN_LOOKS:
            self._looked, self._busy = now, self._cores.mean() or 0.0
            if self._busy < BUSY:
                self._times = _WaitTimes()
        if self._busy < BUSY:
            switch.make(short=False, threads=threads)
            return False
        if self._busy + threads > self._core_count:
            self._crowded = now
        elif now - self._crowded > _ROOMY:
            switch.make(short=False, threads=threads)
            return False
        else:
            return True  # there is room for this one, but waits are also those of another model
        # The first pass behind a change tells nothing: threads have yet to wake, or to end.
        return not switch.make(short=self._times.next(kind, now), threads=threads)


class _WaitTimes:
    """What passes took with long and with short waits since other programs became busy."""

    def __init__(self) -> None:
        self._prefers_short = False
        # When both ways were known, and the other one is to be tried again.
        self._again: float | None = None
        self._seconds = {way: defaultdict[Hashable, deque[float]](_latest) for way in (False, True)}

    def next(self, kind: Hashable, now: float) -> bool:
        """Whether the next pass of this kind should have short waits."""
        long, short = (sum(map(len, self._seconds[way].values())) for way in (False, True))
        if long < _LEAST:
            return False
        if short < _LEAST:
            # What one kind took says nothing of another.
            return self._prefers_short or len(self._seconds[False][kind]) > 1
        self._prefers_short = self._short_is_quicker()
        other = self._seconds[not self._prefers_short]
        if self._again is None:
            self._again = now + max(_SECONDS, _SHARE * sum(map(sum, other.values())))
        elif now > self._again:
            self._again = None
            other.clear()
        return self._prefers_short

    def add(self, kind: Hashable, short: bool, seconds: float) -> None:
        """Count a pass."""
        self._seconds[short][kind].append(seconds)

    def _short_is_quicker(self) -> bool:
        long, short = self._seconds[False], self._seconds[True]
        both = [kind for kind in short if short[kind] and long[kind]]
        return sum(len(short[kind]) * fmean(short[kind]) for kind in both) < (1 - _GAIN) * sum(
            len(short[kind]) * fmean(long[kind]) for kind in both
        )


def _latest() -> deque[float]:
    return deque(maxlen=_LATEST)


@cache
def of_process() -> WaitPolicy:
    """The policy for all passes of this process; the library must have been loaded."""
    return WaitPolicy(wait_switch())
