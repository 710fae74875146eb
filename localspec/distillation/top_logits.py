"""Top logits: the likeliest tokens of a distribution, and the mass of all others.

A vocabulary has 100,000 tokens and more, and nearly all mass is on a few of them. Rows of 64 take
a thousandth of the space, and what a drafter can gain from the rest is next to nothing.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TOP = 64
# The log of a mass that 16-bit floats and sums of rounded probabilities cannot tell from 0.
_NOTHING = -30.0


@dataclass(frozen=True, slots=True)
class TopLogits:
    """Rows of distributions, at temperature 1 and before any filter.

    ids: (rows, n) int32, the likeliest token first. log_probs: (rows, n) float16, natural
    logarithms. rest: (rows,) float16, the logarithm of the mass of all other tokens, -30 or more.
    """

    ids: NDArray[np.int32]
    log_probs: NDArray[np.float16]
    rest: NDArray[np.float16]

    def __len__(self) -> int:
        return len(self.ids)


def top_logits(logits: NDArray[np.float32], count: int = TOP) -> TopLogits:
    """The likeliest `count` tokens of each row. logits: (rows, n_vocab)."""
    count = min(count, logits.shape[1])
    unordered = np.argpartition(logits, -count, 1)[:, -count:]
    values = np.take_along_axis(logits, unordered, 1)
    # Equal logits in the order of the vocabulary, as everywhere.
    order = np.lexsort((unordered, -values), 1)
    ids = np.take_along_axis(unordered, order, 1)
    values = np.take_along_axis(values, order, 1).astype(np.float64)
    highest = values[:, :1]
    total = np.exp(logits - highest, dtype=np.float64).sum(1, keepdims=True)
    log_probs = values - highest - np.log(total)
    rest = np.clip(1 - np.exp(log_probs).sum(1), np.exp(_NOTHING), 1)
    lowest = np.maximum(log_probs, np.finfo(np.float16).min)
    return TopLogits(
        ids.astype(np.int32), lowest.astype(np.float16), np.log(rest).astype(np.float16)
    )


def joined(parts: list[TopLogits]) -> TopLogits:
    """The rows of all parts, in order."""
    return TopLogits(
        np.concatenate([each.ids for each in parts]),
        np.concatenate([each.log_probs for each in parts]),
        np.concatenate([each.rest for each in parts]),
    )
