"""Wait policy: how long the library's threads wait for each other actively before they sleep.

The threads of a pass meet at a barrier behind each operation, hundreds of times. GNU's OpenMP lets
those that are early spin for some milliseconds. That is the quickest way while each thread has a
core to itself: none has to be woken. But where other programs compute on all cores, a thread that
spins keeps its core from the one that all wait for, and a pass can take ten times as long as where
threads soon sleep. Which of the two is quicker is found out while text is written, by passes of
both kinds. It changes no digit: the same threads compute the same rows.
"""

import ctypes
import math
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from statistics import fmean
from time import perf_counter

from localspec.utils.busy_cores import BUSY, BusyCores, allowed_cores

# The least seconds between two looks at what other programs use.
_BETWEEN_LOOKS = 0.5
# Passes in either way that are compared, the latest ones: now and then one takes many times as long
# as the others, and that is the point. So many are needed of each way, and anew after some seconds.
_LATEST, _LEAST, _SECONDS = 24, 6, 60.0
# Short waits must save this share of the time.
_GAIN = 0.1
_MAPS = Path("/proc/self/maps")

Switch = Callable[[bool], None]


class WaitPolicy:
    """Lets the threads of passes wait shortly where that is quicker; one object per process.

    switch: makes waits short, or long again; None where the library has no such choice. cores:
    measures what other programs use of so many `core_count`. short: how waits are now.
    short_passes: how many passes had short waits.
    """

    def __init__(
        self,
        switch: Switch | None,
        cores: BusyCores | None = None,
        core_count: int | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.short = False
        self.short_passes = 0
        self._switch = switch
        self._cores = cores or BusyCores()
        self._core_count = core_count or len(allowed_cores())
        self._clock = clock
        self._looked = -math.inf
        self._seen: _Seen | None = None
        # Two models may compute at a time.
        self._lock = threading.Lock()

    @contextmanager
    def during(self, kind: Hashable, threads: int) -> Iterator[None]:
        """Run one pass. kind: passes of a kind take equally long. threads: those of the pass."""
        if self._switch is None or threads < 2:
            yield
            return
        with self._lock:
            now = self._clock()
            if now - self._looked >= _BETWEEN_LOOKS:
                self._look(now, threads)
            self._set(self._seen is not None and self._seen.next(kind, now))
            seen, short, began = self._seen, self.short, self._clock()
            self.short_passes += short
        yield
        if seen:
            with self._lock:
                seen.add(kind, short, self._clock() - began)

    def _look(self, now: float, threads: int) -> None:
        """Find out whether other programs leave too little room for the threads."""
        self._looked, busy = now, self._cores.mean() or 0.0
        if busy < BUSY or busy + threads <= self._core_count:
            self._seen = None
        elif self._seen is None:
            self._seen = _Seen(now)

    def _set(self, short: bool) -> None:
        if short != self.short and self._switch:
            self._switch(short)
            self.short = short


class _Seen:
    """What passes took with long and with short waits since other programs became busy."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._prefers_short = False
        self._seconds = {way: defaultdict[Hashable, deque[float]](_latest) for way in (False, True)}

    def next(self, kind: Hashable, now: float) -> bool:
        """Whether the next pass of this kind should have short waits."""
        if now - self._since > _SECONDS:
            self._since = now
            self._seconds[not self._prefers_short].clear()
        long, short = (sum(map(len, self._seconds[way].values())) for way in (False, True))
        if long < _LEAST:
            return False
        if short < _LEAST:
            # What one kind took says nothing of another.
            return self._prefers_short or len(self._seconds[False][kind]) > 1
        self._prefers_short = self._short_is_quicker()
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


class GnuSwitch:
    """Makes the waits of GNU's OpenMP short, and long again.

    The library makes them a thousandth as long as soon as it has more threads than cores, in use
    or not. So a thread of ours keeps a team as large as the machine, which does nothing.

    libraries: those of OpenMP in this process.
    """

    def __init__(self, libraries: list[ctypes.CDLL]) -> None:
        self._libraries = libraries
        self._thread: threading.Thread | None = None
        self._end = threading.Event()

    def __call__(self, short: bool) -> None:
        """Make waits short or long. Where no thread can be had, they stay long."""
        if self._thread:
            self._end.set()
            self._thread.join()
            self._thread = None
        if short:
            self._end, ready = threading.Event(), threading.Event()
            thread = threading.Thread(target=self._keep_team, args=(self._end, ready), daemon=True)
            with suppress(RuntimeError):
                thread.start()
                ready.wait()
                self._thread = thread

    def _keep_team(self, end: threading.Event, ready: threading.Event) -> None:
        nothing = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p)
        for library in self._libraries:
            library.GOMP_parallel(nothing, None, max(2, len(allowed_cores())), 0)
        ready.set()
        # The team ends with this thread.
        end.wait()


@cache
def of_process() -> WaitPolicy:
    """The policy for all passes of this process; the library must have been loaded."""
    return WaitPolicy(gnu_switch())


def gnu_switch() -> GnuSwitch | None:
    """Return the switch of this process; None where GNU's OpenMP is not what it loaded."""
    with suppress(OSError):
        paths = {line.split()[-1] for line in _MAPS.read_text().splitlines() if "/libgomp" in line}
        libraries = [ctypes.CDLL(path) for path in sorted(paths)]
        if libraries and all(hasattr(each, "GOMP_parallel") for each in libraries):
            return GnuSwitch(libraries)
    return None
