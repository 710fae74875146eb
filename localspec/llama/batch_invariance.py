"""How wide a pass must be for its logits not to depend on its width.

A backend picks its kernels by the number of rows, and kernels round differently. On a CPU without
flash attention all passes of two rows and more agree bit for bit; elsewhere it has to be tried.
"""

from dataclasses import dataclass
from statistics import median
from time import perf_counter

import numpy as np

from localspec.errors import InvalidValueError
from localspec.llama.context import Context
from localspec.llama.rollback import Rollback
from localspec.speculation.draft import Draft

# Long enough that attention's kernels, too, are those of a real text; and what is tried crosses a
# border: the library computes attention over so many tokens that 256 divides them.
_BORDER = 512
_TIMED = 7


@dataclass(frozen=True, slots=True)
class InvariantWidth:
    """Passes of at least this many rows, up to the widest, give equal bits.

    cost: seconds of such a pass over those of a pass of one row.
    """

    least_rows: int
    cost: float


def probe(context: Context, widest: int) -> InvariantWidth:
    """Find the class by trying; the cache is empty afterwards.

    widest: rows of the widest pass to come. If no narrower pass agrees with it, every pass has to
    be that wide. Raises InvalidValueError when the context is too small to try.
    """
    # A single row often agrees in a short trial and not in a long text.
    needed = 4 * widest + 2
    if context.n_ctx < needed:
        raise InvalidValueError(
            f"context is {context.n_ctx}; passes of {widest} rows are tried out in {needed} or more"
        )
    candidates = [rows for rows in (2, 4, 8, 16, 32) if rows < widest]
    agreeing = (rows for rows in candidates if _agree(context, rows, widest))
    least = next(agreeing, widest)
    context.truncate(len(context.tokens) // 2)
    cost = typical_seconds(context, least) / typical_seconds(context, 1)
    context.truncate(0)
    return InvariantWidth(least, cost)


def _agree(context: Context, narrow: int, widest: int) -> bool:
    """Whether all passes from narrow to widest give equal logits, pass after pass."""
    count = 2 * widest
    prefix = min(_BORDER - widest, context.n_ctx - count - widest)
    reference = logits_by(context, widest, prefix, count)
    return all(
        np.array_equal(logits_by(context, rows, prefix, count), reference)
        for rows in range(narrow, widest)
    )


def logits_by(context: Context, rows: int, prefix: int, count: int) -> np.ndarray:
    """The logits after each of `count` tokens behind a prefix, scored in passes of `rows`.

    Shape (count, n_vocab). The tokens are always the same.
    """
    context.least_rows = 1
    tokens = [7 * i % min(50, context.n_vocab) for i in range(prefix + count)]
    context.hold(tokens[:prefix])
    kept = []
    for start in range(prefix, prefix + count, rows):
        # The last pass is filled up, as it would be when decoding.
        chain = (tokens[start : start + rows] + tokens)[:rows]
        kept.append(context.score(chain[0], Draft(chain[1:])).logits.copy())
        context.commit(range(rows - 1))
    return np.concatenate(kept)[:count]


def typical_seconds(context: Context, rows: int) -> float:
    """The median time of a pass of so many rows."""
    return median(seconds_of_pass(context, rows) for _ in range(_TIMED))


def seconds_of_pass(context: Context, rows: int) -> float:
    """The time of one pass over so many rows; the cache forgets it.

    Where forgetting takes time itself, that of forgetting the draft is part of it.
    """
    forgets_freely = context.rollback is Rollback.PARTIAL
    if not forgets_freely:
        context.truncate(0)
        if rows < context.n_ctx:
            context.extend([0])
    began = perf_counter()
    context.score(0, Draft([0] * (rows - 1)))
    if not forgets_freely:
        context.commit([])
    return perf_counter() - began
