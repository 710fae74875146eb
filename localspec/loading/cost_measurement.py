"""Cost measurement: what passes of a target, and drafts of a model, take on this machine."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from time import perf_counter

from localspec.control.base_costs import WIDEST
from localspec.control.cost_profile import CostProfile, DrafterSeconds
from localspec.control.width_changes import PARTS, UNSETTLED
from localspec.llama.pass_timing import (
    SLOW_PASS,
    least_seconds,
    seconds_of_pass,
    seconds_of_second_pass,
)
from localspec.llama.rollback import Rollback
from localspec.llama.sequence import KVSequence
from localspec.llama.shared_context import SharedSequence

# Measuring ends after about so many seconds; the first widths are always measured. A slow model's
# are not measured twice once twice as many seconds are over.
_BUDGET = 0.8
# The order of measuring, and how many are always measured; other widths are interpolated.
_WIDTHS, _ALWAYS = (1, 4, 2, 8, 3, 16, 5, 6, 7, 12, 32, 24), 4
# After the first time each width is measured once more, and so many times if it takes less.
_SWEEPS = 4
# On a GPU: the passes of each width that are measured once it is settled, the changes between two
# widths, and the part of a plain pass that a change must cost to be counted. Where a pass takes so
# many seconds, mostly on a processor, a change matters little, and measuring it would take long.
_SETTLED_PASSES, _CHANGES, _NOTABLE_CHANGE, _NO_MATTER = 3, 4, 0.1, 0.07
# Reading is measured with few tokens; if that takes less than _QUICK_READ seconds, with many tokens
# too: a GPU reads many tokens in one pass as fast as a few.
_FEW, _MANY, _QUICK_READ = 64, 512, 0.005
# The rows of a draft model's passes where its backlog is short, and where it is longer.
_BACKLOGS = (2, 6)
# The rows of a draft of one token and of eight, with a token more that was committed before.
_DRAFTED = (2, 9)


def costs_of_target(context: KVSequence) -> CostProfile:
    """Measure the passes of a target; its cache is empty afterwards."""
    if context.model.is_offloaded and context.rollback is Rollback.PARTIAL:
        return _of_gpu(context)
    return CostProfile(_passes(context))


def _of_gpu(context: KVSequence) -> CostProfile:
    """Measure passes that follow others as wide, and what it costs when the width changes."""
    context.truncate(0)
    if _settled(context, 1) > _NO_MATTER:
        return CostProfile(_passes(context))
    began = perf_counter()
    found = _by_width(context, _settled, _BUDGET)
    # The first tenths of a second after a load are slow on a GPU too.
    for width, seconds in found.items():
        if perf_counter() - began < 2 * _BUDGET:
            found[width] = min(seconds, _settled(context, width))
    narrow, wide = sorted(found)[0], sorted(found)[min(2, len(found) - 1)]
    change = _seconds_of_change(context, found, narrow, wide)
    context.truncate(0)
    return CostProfile(found, change=change)


def _by_width(
    context: KVSequence, measure: Callable[[KVSequence, int], float], budget: float
) -> dict[int, float]:
    """Measure passes by their rows until so many seconds are over, the first widths always."""
    began, found = perf_counter(), dict[int, float]()
    for width in _WIDTHS:
        if width > min(WIDEST, context.n_ctx):
            continue
        if len(found) >= _ALWAYS and perf_counter() - began > budget:
            break
        found[width] = measure(context, width)
    return found


def _settled(context: KVSequence, width: int) -> float:
    """Seconds of a pass that follows others as wide."""
    # The first passes of a kind take many times as long.
    _unsettled(context, width)
    return min(seconds_of_pass(context, width) for _ in range(_SETTLED_PASSES))


def _seconds_of_change(
    context: KVSequence, settled: Mapping[int, float], one: int, other: int
) -> float:
    """How much longer the passes behind a change between two widths take, all together.

    0 if that is next to nothing, beside what passes differ by anyway.
    """
    change = median(
        _unsettled(context, width) - UNSETTLED * settled[width] for width in (one, other) * _CHANGES
    )
    return change if change > _NOTABLE_CHANGE * settled[one] else 0.0


def _unsettled(context: KVSequence, width: int) -> float:
    """Seconds of the first passes of a width."""
    return sum(seconds_of_pass(context, width) for _ in range(UNSETTLED))


def _passes(context: KVSequence) -> dict[int, float]:
    began = perf_counter()
    context.truncate(0)
    # A GPU may compile its kernels for a width in the first pass of it (Vulkan).
    measure = seconds_of_second_pass if context.model.is_offloaded else seconds_of_pass
    found = _by_width(context, measure, _BUDGET / 2)
    # The first tenths of a second after a load are slow, whatever is measured in them: so all are
    # measured again, and not each twice at once.
    for sweep in range(_SWEEPS):
        for width, seconds in found.items():
            is_late = width > 1 and perf_counter() - began > 2 * _BUDGET
            if (not sweep and not is_late) or seconds < SLOW_PASS:
                found[width] = min(seconds, seconds_of_pass(context, width))
    # A pass that takes longer than a wider one is padded to it. Whatever slowed it down for a
    # moment would do so for good, so it is measured again.
    least = math.inf
    for width in sorted(found, reverse=True):
        if found[width] > least:
            found[width] = min(
                found[width], least_seconds(partial(seconds_of_pass, context, width))
            )
        least = min(least, found[width])
    context.truncate(0)
    return found


def seconds_one_by_one(context: KVSequence) -> DrafterSeconds:
    """Measure a draft model that draws one token per pass; its cache is empty afterwards."""
    context.truncate(0)
    further = least_seconds(lambda: seconds_of_pass(context, 1))
    first = least_seconds(lambda: seconds_of_pass(context, min(2, context.n_ctx)))
    reading, change = _reading(context), 0.0
    context.truncate(0)
    if context.model.is_offloaded:
        few, more = (min(rows, context.n_ctx) for rows in _BACKLOGS)
        steady = {rows: _settled(context, rows) for rows in (few, more)}
        # A single pass of more rows, and back to those of the next token.
        change = (1 + PARTS[0]) * _seconds_of_change(context, steady, few, more)
    context.truncate(0)
    return DrafterSeconds(first, further, reading, change)


def seconds_in_one_pass(context: KVSequence) -> DrafterSeconds:
    """Measure a draft model that draws all tokens of a draft from one pass."""
    context.truncate(0)
    few, many = (min(rows, context.n_ctx) for rows in _DRAFTED)
    first = least_seconds(lambda: seconds_of_pass(context, few))
    all_rows = least_seconds(lambda: seconds_of_pass(context, many))
    reading = _reading(context)
    context.truncate(0)
    return DrafterSeconds(first, max(0.0, all_rows - first) / max(1, many - few), reading)


def seconds_of_block(context: KVSequence) -> DrafterSeconds:
    """Measure a head that decodes a whole block at any depth, so that further tokens cost none."""
    context.truncate(0)
    block = context.context.block_size
    first = least_seconds(lambda: seconds_of_pass(context, block))
    reading = _reading(context)
    context.truncate(0)
    return DrafterSeconds(first, 0.0, reading)


def seconds_beside_text(context: SharedSequence) -> DrafterSeconds:
    """Measure a head that reads its target's cache, where an empty text gets a token meanwhile."""
    is_empty = not context.text.tokens
    if is_empty:
        context.text.extend([0])
    row = least_seconds(lambda: seconds_of_pass(context, 1))
    if is_empty:
        context.text.truncate(0)
    return DrafterSeconds(row, row, 0.0)


def _reading(context: KVSequence) -> float:
    """Seconds of each token of a text that is read."""
    few, more = min(_FEW, context.n_ctx), min(_MANY, context.n_ctx)
    took = least_seconds(lambda: _seconds_of_reading(context, few))
    if took > _QUICK_READ:
        return took / few
    return min(took / few, least_seconds(lambda: _seconds_of_reading(context, more)) / more)


def _seconds_of_reading(context: KVSequence, count: int) -> float:
    context.truncate(0)
    began = perf_counter()
    context.extend([0] * count)
    return perf_counter() - began
