"""Busy cores: how much of the cores of this process is used, by all and by other programs."""

import os
import time

import psutil

# From this many busy cores on, what other programs use matters.
BUSY = 0.4


class BusyCores:
    """Measures how many of the cores of this process are used, from call to call.

    children: whether programs that this process has started are not others; they count once they
    have ended, and on Windows nothing is known of them.
    """

    def __init__(self, *, children: bool = False) -> None:
        self._cores, self._children = allowed_cores(), children
        self._before = self._times()

    def mean(self, least_seconds: float = 0) -> float | None:
        """Return how many other programs use: the mean since the last call of any method.

        None, and nothing is measured, if that was less than so many seconds ago.
        """
        if self._children and os.name == "nt":
            return None
        now, before = self._times(), self._before
        seconds, own, idle = (n - b for n, b in zip(now, before, strict=True))
        if seconds <= least_seconds:
            return None
        self._before = now
        return max(0.0, len(self._cores) - (idle + own) / seconds)

    def share(self) -> float:
        """Return how much of all cores this and other programs use, from 0 to 1.

        The mean since the last one, as for `mean`.
        """
        now, before = self._times(), self._before
        seconds, idle = now[0] - before[0], now[2] - before[2]
        self._before = now
        # The system counts idle time in ticks of up to 10 ms.
        return min(1.0, max(0.0, 1 - idle / seconds / len(self._cores)))

    def _times(self) -> tuple[float, float, float]:
        """The seconds until now, those this process computed, and those the cores were idle."""
        cores = psutil.cpu_times(percpu=True)
        # While a program waits for a disk, its core is free for others.
        idle = [each.idle + getattr(each, "iowait", 0) for each in cores]
        mine = sum(idle[core] for core in self._cores if core < len(idle))
        times = os.times()
        ended = times.children_user + times.children_system if self._children else 0.0
        return time.perf_counter(), time.process_time() + ended, mine


def busy_line(cores: float | None) -> str:
    """Return what it means for times that other programs used so many cores; "" if they did not."""
    if cores is None or cores < BUSY:
        return ""
    return (
        f"other programs kept {cores:.1f} of {len(allowed_cores())} cores busy meanwhile: alone "
        "localspec is faster, and what drafts gain may differ"
    )


def allowed_cores() -> frozenset[int]:
    """Return the numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))
