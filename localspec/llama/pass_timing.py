"""Pass timing: the seconds of passes of one model on this machine."""

from collections.abc import Callable
from statistics import median
from time import perf_counter

from localspec.llama.rollback import Rollback
from localspec.llama.sequence import KVSequence
from localspec.speculation.draft import Draft

_TIMED_PASSES = 7
# A pass that takes so many seconds is not repeated often.
SLOW_PASS = 0.02


def typical_seconds(context: KVSequence, rows: int) -> float:
    """The median seconds of a pass of `rows` rows."""
    return median(seconds_of_pass(context, rows) for _ in range(_TIMED_PASSES))


def seconds_of_pass(context: KVSequence, rows: int) -> float:
    """The seconds of one pass of `rows` rows, which are removed from the cache again.

    For models whose rollback takes time, the rollback of the draft is included.
    """
    rolls_back_freely = context.rollback is Rollback.PARTIAL
    if not rolls_back_freely:
        context.truncate(0)
        if rows < context.n_ctx:
            context.extend([0])
    began = perf_counter()
    context.score(0, Draft([0] * (rows - 1)))
    if not rolls_back_freely:
        context.commit([])
    return perf_counter() - began


def seconds_of_second_pass(context: KVSequence, rows: int) -> float:
    """The seconds of a pass behind one of as many rows: the first may build or compile kernels."""
    seconds_of_pass(context, rows)
    return seconds_of_pass(context, rows)


def least_seconds(measure: Callable[[], float]) -> float:
    """The least of a few measurements: other programs only make a pass slower, and a GPU's first
    passes of a kind take many times as long.
    """
    best = min(measure(), measure())
    return min(best, *(measure() for _ in range(3))) if best < SLOW_PASS else best
