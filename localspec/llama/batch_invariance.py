"""Batch invariance: how wide a pass must be so that its logits do not depend on its width.

A backend chooses its kernels by the number of rows, and kernels round differently. On a CPU without
flash attention, all passes of two or more rows give equal bits. A GPU has other kernels for one
row, for a few and for many, so there all passes are uniform: prompts too are read so many rows at a
time.
"""

from dataclasses import dataclass

import numpy as np

from localspec.errors import InvalidValueError
from localspec.llama.pass_timing import typical_seconds
from localspec.llama.sequence import KVSequence
from localspec.speculation.draft import Draft
from localspec.utils.option_names import options

# The probe's text is long enough for the attention kernels of a real text, and has passes on both
# sides of this length: the library pads attention to a multiple of 256, where kernels may change.
_BORDER = 512
# The rows of uniform passes. CUDA multiplies up to 8 rows by quantised weights with kernels that
# read the weights once.
UNIFORM_ROWS = 8


@dataclass(frozen=True, slots=True)
class InvariantWidth:
    """The pass width for reproducible texts.

    least_rows: passes from this many rows up to the widest give equal bits. cost: seconds of such a
    pass divided by the seconds of a pass of one row. is_uniform: no pass may be wider either, not
    even one that reads a prompt.
    """

    least_rows: int
    cost: float
    is_uniform: bool = False


def probe(context: KVSequence, widest: int) -> InvariantWidth:
    """Find the least width by trying candidates; the KV cache is empty afterwards.

    widest: the rows of the widest pass of a generation. If no narrower pass gives the same bits,
    every pass has to be that wide. Raises InvalidValueError if the context is too small to probe.
    """
    # A single row is no candidate: it often agrees in a short probe but not in a long text.
    needed = 4 * widest + 2
    if context.n_ctx < needed:
        raise InvalidValueError(
            f"context is {context.n_ctx}; passes of {widest} rows are tried out in {needed} or more"
        )
    context.set_width(1)
    candidates = [rows for rows in (2, 4, 8, 16, 32) if rows < widest]
    agreeing = (rows for rows in candidates if _give_equal_logits(context, rows, widest))
    least = next(agreeing, widest)
    context.truncate(len(context.tokens) // 2)
    cost = typical_seconds(context, least) / typical_seconds(context, 1)
    context.truncate(0)
    return InvariantWidth(least, cost)


def probe_uniform(context: KVSequence) -> InvariantWidth:
    """Try out whether uniform passes are enough; the KV cache is empty afterwards.

    A token must get the same bits in the first row, with padding behind it, as in any other row.
    Raises InvalidValueError if it does not, or if the context is too small to probe.
    """
    rows = UNIFORM_ROWS
    count = 4 * rows
    needed = count + 2 * rows
    if context.n_ctx < needed:
        raise InvalidValueError(
            f"context is {context.n_ctx}; passes of {rows} rows are tried out in {needed} or more"
        )
    # The last pass may begin with the last of these tokens, and is filled.
    prefix = min(_BORDER - count // 2, context.n_ctx - count - 2 * rows)
    context.set_width(rows, is_uniform=True)
    in_any_row = logits_by(context, rows, prefix, count)
    context.truncate(0)
    in_first_row = logits_by(context, 1, prefix, count)
    context.set_width(1)
    if not np.array_equal(in_any_row, in_first_row):
        raise InvalidValueError(
            f"reproducible is not possible for {context.model.path.name} here: even passes of "
            f"equally many rows give a token other digits in another row; do without, or add "
            f"{options(device=['none'])}"
        )
    cost = typical_seconds(context, rows) / typical_seconds(context, 1)
    context.truncate(0)
    return InvariantWidth(rows, cost, is_uniform=True)


def _give_equal_logits(context: KVSequence, narrow: int, widest: int) -> bool:
    """Whether all pass widths from `narrow` to `widest` give equal logits."""
    count = 2 * widest
    prefix = min(_BORDER - widest, context.n_ctx - count - widest)
    reference = logits_by(context, widest, prefix, count)
    return all(
        np.array_equal(logits_by(context, rows, prefix, count), reference)
        for rows in range(narrow, widest)
    )


def logits_by(context: KVSequence, rows: int, prefix: int, count: int) -> np.ndarray:
    """The logits after each of `count` tokens, scored in passes of `rows` rows.

    prefix: the number of tokens before them. Returns (count, n_vocab). The tokens are fixed.
    """
    tokens = [7 * i % min(50, context.n_vocab) for i in range(prefix + count)]
    context.set_tokens(tokens[:prefix])
    kept = []
    start = prefix
    while start < prefix + count:
        width = min(rows, context.most_kept)
        # The last pass is filled to its width, as in decoding.
        chain = (tokens[start : start + width] + tokens)[:width]
        kept.append(context.score(chain[0], Draft(chain[1:])).logits.copy())
        context.commit(range(width - 1))
        start += width
    return np.concatenate(kept)[:count]
