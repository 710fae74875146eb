"""Threads: fewer than by default where other programs keep cores busy and fewer are quicker."""

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from localspec.llama.model import Model
from localspec.llama.pass_timing import seconds_of_pass
from localspec.llama.sequence import KVSequence
from localspec.loading.config import RuntimeConfig, threads_for
from localspec.loading.fingerprints import machine_signature
from localspec.utils.busy_cores import BUSY, BusyCores
from localspec.utils.format import ago
from localspec.utils.option_names import option
from localspec.utils.paths import cache_file, stat_signature
from localspec.utils.progress import report_progress
from localspec.utils.stored_json import stored, try_to_store

# Seconds over which the use of the cores is measured at load.
_WATCHED = 0.15
# The share of a core that counts as one; from BUSY cores on, fewer threads are tried out.
_SHARE = 0.4
# A trial alternates between both numbers of threads: for so many seconds, and rounds at least. Then
# it ends early if one number takes so many times as long.
_SECONDS, _ROUNDS, _CLEAR = 0.6, 2, 4
# Fewer threads must save this share of the time.
_GAIN = 0.05
# For so many seconds a trial counts for other loads of the model, too, if they find about as many
# cores busy: what is busy for a moment only is no reason for fewer threads.
_REMEMBERED, _ABOUT = 600.0, 0.3
# The least seconds between two looks at the machine, and before the look that follows a decision.
_BETWEEN_LOOKS, _AFTER_DECISION = 5.0, 60.0


class FittedThreads(NamedTuple):
    """The configuration to go on with, and a line for the user if it has fewer threads."""

    runtime: RuntimeConfig
    note: str | None = None


def fit_threads(
    target: KVSequence, runtime: RuntimeConfig, known: FittedThreads | float | None = None
) -> FittedThreads:
    """Try out fewer threads if the machine is busy and the user named no number.

    Threads wait for the last of them many times per pass. If that one shares its core with another
    program, all of them wait, and one thread less can be twice as fast.

    known: what `known_threads` says, which looks at the machine. Sets the threads of the target's
    context; empties its cache.
    """
    fitted = known_threads(target.model, runtime) if known is None else known
    if not isinstance(fitted, FittedThreads):
        return quicker_threads(target, runtime, fitted)
    target.context.set_threads(fitted.runtime.threads_of(target.model))
    return fitted


def known_threads(model: Model, runtime: RuntimeConfig) -> FittedThreads | float:
    """Return what `fit_threads` would where that needs no passes.

    Where it does, return how many cores other programs keep busy, for `quicker_threads`.
    """
    usual = threads_for(model.size)
    if runtime.most_threads and runtime.most_threads >= usual:
        # Not reduced: what was measured with the usual number holds.
        return FittedThreads(replace(runtime, most_threads=None))
    if runtime.threads or runtime.most_threads or runtime.threads_of(model) == 1:
        return FittedThreads(runtime)
    busy = busy_cores()
    if (fewer := threads_beside(busy, usual)) == usual:
        return FittedThreads(runtime)
    found = stored(_trial_file(model, runtime, usual, fewer), _recent)
    if found is None or abs(busy - found.busy) > _ABOUT:
        return busy
    return _decided(found, runtime, busy, usual, fewer)


def quicker_threads(target: KVSequence, runtime: RuntimeConfig, busy: float) -> FittedThreads:
    """Try out fewer threads where other programs keep `busy` cores busy; as `fit_threads`.

    What it finds counts for loads within the next minutes: on a busy machine it takes seconds.
    """
    usual = threads_for(target.model.size)
    fewer = threads_beside(busy, usual)
    if fewer == usual:
        return FittedThreads(runtime)
    report_progress("other programs are running: testing fewer threads")
    with_usual, with_fewer = _seconds(target, usual, fewer)
    record = {"seconds": [with_usual, with_fewer], "busy": busy, "moment": time.time()}
    try_to_store(_trial_file(target.model, runtime, usual, fewer), record)
    fitted = _decided(_Trial(with_usual, with_fewer, busy), runtime, busy, usual, fewer)
    target.context.set_threads(fitted.runtime.most_threads or usual)
    return fitted


class _Trial(NamedTuple):
    """The mean seconds of a pass with the usual number of threads and with fewer.

    busy: the cores that other programs kept busy. moment: when an earlier load measured them, in
    seconds since 1970.
    """

    with_usual: float
    with_fewer: float
    busy: float
    moment: float | None = None


def _decided(
    found: _Trial, runtime: RuntimeConfig, busy: float, usual: int, fewer: int
) -> FittedThreads:
    if found.with_fewer > (1 - _GAIN) * found.with_usual:
        return FittedThreads(runtime)
    when = "" if found.moment is None else f" (measured {ago(found.moment)})"
    note = (
        f"threads: {fewer}, not {usual}: other programs keep {busy:.1f} cores busy, and a token "
        f"takes {1e3 * found.with_fewer:.1f} ms with {fewer} and {1e3 * found.with_usual:.1f} ms "
        f"with {usual}{when}; {option('threads')} sets the number"
    )
    return FittedThreads(replace(runtime, most_threads=fewer), note)


def _trial_file(model: Model, runtime: RuntimeConfig, usual: int, fewer: int) -> Path:
    """The file of the cache with what a trial found out."""
    key = [stat_signature(model.path), machine_signature(), runtime.costs_depend_on]
    return cache_file("costs", ["threads", *key, usual, fewer])


def _recent(record: Any) -> _Trial | None:
    """Return a trial that was stored; None where it is too old to count."""
    with_usual, with_fewer = (float(each) for each in record["seconds"])
    if not all(0 < each < math.inf for each in (with_usual, with_fewer)):
        raise ValueError("not the seconds of passes")
    busy, moment = float(record["busy"]), float(record["moment"])
    is_recent = 0 <= time.time() - moment < _REMEMBERED
    return _Trial(with_usual, with_fewer, busy, moment) if is_recent else None


def threads_beside(busy: float, usual: int) -> int:
    """Return the number of threads to try where other programs keep so many cores busy."""
    return usual if busy < BUSY else max(1, usual - int(busy + 1 - _SHARE))


def busy_cores() -> float:
    """Return how many of the cores of this process other programs use; takes a moment."""
    cores = BusyCores()
    time.sleep(_WATCHED)
    return cores.mean() or 0.0


class ThreadWatch:
    """Sees, between texts, that other programs leave room for another number of threads.

    usual: the number on an idle machine. present: the number that was chosen at load.
    """

    def __init__(self, usual: int, present: int) -> None:
        self._usual = usual
        self._decided = self._last = present
        self._pause = _BETWEEN_LOOKS
        self._cores = BusyCores()

    def look(self) -> float | None:
        """Return how many cores other programs keep busy, if that asks for a decision.

        It does if two looks in a row find room for the same number of threads, and this is not the
        number of the last decision. Looks follow each other after some seconds at least; a call in
        between costs next to nothing.
        """
        busy = self._cores.mean(self._pause)
        if busy is None:
            return None
        self._pause = _BETWEEN_LOOKS
        before, self._last = self._last, threads_beside(busy, self._usual)
        if self._last != before or self._last == self._decided:
            return None
        self._decided, self._pause = self._last, _AFTER_DECISION
        return busy


def thread_watch(model: Model, asked: RuntimeConfig, chosen: RuntimeConfig) -> ThreadWatch | None:
    """Make a watch for a target; None where the number of threads must stay as it is.

    It does where the user named it, where one thread is enough, and with `reproducible`, as digits
    depend on it. On a GPU it hardly matters, and there may be no room for a trial.
    asked, chosen: before and after `fit_threads`.
    """
    usual = threads_for(model.size)
    named = asked.threads or asked.most_threads
    if named or usual == 1 or asked.reproducible or model.is_offloaded:
        return None
    return ThreadWatch(usual, chosen.threads_of(model))


def _seconds(target: KVSequence, *threads: int) -> list[float]:
    """Return the mean seconds of a pass with each number of threads.

    The mean, not the least: sharing a core costs nothing in those passes in which the other program
    happens to wait.
    """
    target.truncate(0)
    for count in threads:
        _seconds_with(target, count)  # a first pass takes many times as long as those after it
    began, rounds = time.perf_counter(), 0
    total = dict.fromkeys(threads, 0.0)
    while rounds < _ROUNDS or time.perf_counter() - began < _SECONDS:
        for count in threads if rounds % 2 == 0 else reversed(threads):
            total[count] += _seconds_with(target, count)
        rounds += 1
        if rounds >= _ROUNDS and max(total.values()) > _CLEAR * min(total.values()):
            break
    target.truncate(0)
    return [total[count] / rounds for count in threads]


def _seconds_with(target: KVSequence, threads: int) -> float:
    target.context.set_threads(threads)
    return seconds_of_pass(target, 1)
