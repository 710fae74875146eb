"""Filters: turn logits into a distribution, with one function for target and drafters.

The order and the meaning of each filter are those of llama.cpp's default sampler chain. Exactness
needs the same code for both models. Of equal logits, the lower token id comes first.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.errors import LocalspecError
from localspec.sampling.distribution import Distribution
from localspec.sampling.params import SamplingParams

Row = NDArray[np.float32]
Ids = NDArray[np.intp]

# `largest` splits a row into interleaved blocks of this size.
_BLOCK_SIZE = 64
# top-p tries this many of the likeliest tokens before it sorts the whole vocabulary.
_TOP_P_GUESS = 1024
# llama.cpp stores temperatures as float32, where values up to this round to zero.
_GREEDY_UP_TO = 2.0**-150


class NoTokenError(LocalspecError):
    """Every token is forbidden."""


def distribution(logits: Row, params: SamplingParams, recent: Sequence[int] = ()) -> Distribution:
    """The distribution of the next token.

    logits: (n_vocab,) float32, not modified. recent: the tokens before this one, at least the last
    `params.penalty_window` of them (read only when a penalty is on).
    Raises NoTokenError if every token is forbidden, and LocalspecError for NaN and infinity.
    """
    with np.errstate(over="ignore"):  # overflow gives infinity, as in llama.cpp
        return _filtered(_adjusted(logits, params, recent), params)


def _filtered(row: Row, params: SamplingParams) -> Distribution:
    greedy = params.temperature <= _GREEDY_UP_TO
    if greedy and params.typical_p == 1:
        best = int(row.argmax())
        _require_possible(row[best])
        return Distribution(row[best : best + 1].copy(), np.array([best]))
    values, ids = _truncated(row, params)
    if greedy:
        best = int(np.lexsort((ids, -values))[0]) if ids is not None else int(values.argmax())
        return Distribution(values[best : best + 1], np.array([best if ids is None else ids[best]]))
    return Distribution(values, ids, params.temperature)


def logprobs(logits: Row, tokens: Sequence[int] | Ids) -> list[float]:
    """The log-softmax (natural logarithm) of raw logits at these tokens. logits: (n_vocab,)."""
    top = logits.max()
    total = float(top) + float(np.log(np.exp(logits - top).sum(dtype=np.float64)))
    return [float(logits[token]) - total for token in tokens]


def largest(row: Row, k: int) -> Ids:
    """The ids of the k largest entries, largest first; of equal entries, the lower id first."""
    if k < row.size:
        candidates = _at_least_the_kth(row, k)
        values = row[candidates]
    else:
        candidates, values = np.arange(row.size), row
    return np.asarray(candidates[np.argsort(-values, kind="stable")[:k]])


def _at_least_the_kth(row: Row, k: int) -> Ids:
    """Ids, ascending, of a few entries that include the k largest.

    The k-th largest of the blocks' maxima is a lower bound of the k-th largest entry. Computing it
    reads the row twice, which is several times faster than partitioning the row.
    """
    blocks = row.size // _BLOCK_SIZE
    if blocks <= k:
        return np.arange(row.size)
    maxima = row[: blocks * _BLOCK_SIZE].reshape(_BLOCK_SIZE, blocks).max(axis=0)
    bound = np.partition(maxima, blocks - k)[blocks - k]
    return np.flatnonzero(row >= bound)


def _require_possible(top: np.float32) -> None:
    if np.isnan(top) or top == np.inf:
        raise LocalspecError(
            f"the model's logits contain {top}; its file or this build is broken, "
            "or a bias or penalty is far too large"
        )
    if top == -np.inf:
        raise NoTokenError(
            "every token is forbidden here: between them the grammar, the logit bias, "
            "--min-tokens and --ignore-eos leave none; relax one"
        )


def _adjusted(logits: Row, params: SamplingParams, recent: Sequence[int]) -> Row:
    """The logits with bias and penalties; a copy only when something changes."""
    penalises = params.penalises and len(recent) > 0
    if not params.logit_bias and not penalises:
        return logits
    row = logits.copy()
    for token, bias in params.logit_bias.items():
        if token < row.size:
            row[token] += np.float32(bias)
    if penalises:
        _penalise(row, params, recent)
    return row


def _penalise(row: Row, params: SamplingParams, recent: Sequence[int]) -> None:
    window = recent if params.penalty_window < 0 else recent[-params.penalty_window :]
    ids, counts = np.unique(np.asarray(window), return_counts=True)
    kept = ids < row.size
    ids, counts = ids[kept], counts[kept].astype(np.float32)
    values = row[ids]
    repeat = np.float32(params.repeat_penalty)
    with np.errstate(all="ignore"):
        values = np.where(values <= 0, values * repeat, values / repeat)
        row[ids] = values - (
            counts * np.float32(params.frequency_penalty) + np.float32(params.presence_penalty)
        )


def _truncated(row: Row, params: SamplingParams) -> tuple[Row, Ids | None]:
    """The logits and ids that survive top-k, typical-p, top-p and min-p."""
    top = row.max()
    _require_possible(top)
    # Rounded to float32, as in llama.cpp: a value that rounds to 1 (or 0 for min-p) is off.
    typical_p, top_p = np.float32(params.typical_p), np.float32(params.top_p)
    min_p = np.float32(params.min_p)
    whole = params.top_k == 0 or params.top_k >= row.size
    if whole and typical_p == 1 and top_p == 1:
        return _min_p_of_all(row, top, min_p)
    if whole and typical_p == 1:
        values, ids = _top_p_of_all(row, top, top_p)
    else:
        ids = largest(row, row.size if whole else params.top_k)
        values = row[ids]
        values, ids = _typical(values, ids, typical_p)
        values, ids = _top_p(values, ids, top_p)
    return _min_p(values, ids, min_p)


def _min_p_of_all(row: Row, top: np.float32, min_p: np.float32) -> tuple[Row, Ids | None]:
    if min_p == 0:
        return row, None
    ids = np.flatnonzero(row >= top + np.log(min_p))
    return row[ids], ids


def _min_p(values: Row, ids: Ids, min_p: np.float32) -> tuple[Row, Ids]:
    if min_p == 0:
        return values, ids
    kept = values >= values.max() + np.log(min_p)
    return values[kept], ids[kept]


def _top_p(values: Row, ids: Ids, top_p: np.float32) -> tuple[Row, Ids]:
    """values: in any order; the result is sorted, likeliest first."""
    if top_p == 1:
        return values, ids
    order = np.lexsort((ids, -values))
    values, ids = values[order], ids[order]
    mass = np.cumsum(np.exp(values.astype(np.float64) - values[0]))
    return _shortest_prefix(values, ids, mass / mass[-1], top_p)


def _top_p_of_all(row: Row, top: np.float32, top_p: np.float32) -> tuple[Row, Ids]:
    """top-p over the whole vocabulary; sorts only the likeliest tokens if those suffice."""
    weights = np.exp(row - top)
    total = weights.sum(dtype=np.float64)
    ids = largest(row, min(_TOP_P_GUESS, row.size))
    mass = np.cumsum(weights[ids], dtype=np.float64) / total
    if mass[-1] >= top_p:
        return _shortest_prefix(row[ids], ids, mass, top_p)
    descending = np.sort(row)[::-1]
    weights = np.exp(descending - top)
    mass = np.cumsum(weights, dtype=np.float64) / total
    count = min(int(np.searchsorted(mass, top_p, side="left")) + 1, row.size)
    above = np.flatnonzero(row > descending[count - 1])
    level = np.flatnonzero(row == descending[count - 1])[: count - above.size]
    ids = np.concatenate([above, level])
    return row[ids], ids


def _shortest_prefix(
    values: Row, ids: Ids, mass: NDArray[np.float64], wanted: np.float32
) -> tuple[Row, Ids]:
    """The shortest prefix whose cumulated probability reaches `wanted`."""
    count = int(np.searchsorted(mass, wanted, side="left")) + 1
    return values[:count], ids[:count]


def _typical(values: Row, ids: Ids, typical_p: np.float32) -> tuple[Row, Ids]:
    if typical_p == 1:
        return values, ids
    scores = values.astype(np.float64) - values[0]
    weights = np.exp(scores)
    total = weights.sum()
    probabilities, surprise = weights / total, np.log(total) - scores
    possible = probabilities > 0
    entropy = (probabilities[possible] * surprise[possible]).sum()
    order = np.argsort(np.abs(surprise - entropy), kind="stable")
    mass = np.cumsum(probabilities[order])
    count = int(np.searchsorted(mass, typical_p, side="right")) + 1
    return values[order[:count]], ids[order[:count]]
