"""Sampling written out plainly: whole rows are sorted, and the noise of every token is computed.

This is what the quick filters and the quick search for the winner must equal, bit for bit.
"""

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from localspec.sampling.distribution import Distribution
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams

Row = NDArray[np.float32]
Ids = NDArray[np.intp]


def row_of_levels(
    rng: np.random.Generator,
    *,
    size: int,
    spread: float,
    step: float,
    forbidden: float,
    peak: float,
) -> Row:
    """A random row. step: of the levels that its logits have, so that many are equal; 0: of none.

    forbidden: the share of -inf. peak: one of the logits.
    """
    row = rng.standard_normal(size) * spread
    if step:
        row = np.round(row / step) * step
    row[rng.random(size) < forbidden] = -np.inf
    row[rng.integers(size)] = peak
    return row.astype(np.float32)


def plain_distribution(row: Row, params: SamplingParams) -> Distribution:
    """The filters without penalties and biases, for a row without NaN and infinity."""
    typical_p, top_p = np.float32(params.typical_p), np.float32(params.top_p)
    min_p = np.float32(params.min_p)
    whole = params.top_k == 0 or params.top_k >= row.size
    if params.temperature == 0 and typical_p == 1:
        best = int(row.argmax())
        return Distribution(row[[best]], np.array([best]), 1.0)
    ids = np.argsort(-row, kind="stable")
    sigmas = float(np.float32(params.top_n_sigma))
    if sigmas:
        possible = row[row > -np.inf].astype(np.float64)
        least = np.float32(float(row.max()) - sigmas * float(possible.std()))
        ids = ids[row[ids] >= least]
    if whole and typical_p == 1 and top_p == 1:
        ids = np.sort(ids)
    elif whole and typical_p == 1 and not sigmas:
        ids = ids[: top_p_count(row, ids, top_p)]
        # Within the first guess they are sorted, beyond it they stand by id.
        ids = ids if ids.size <= 1024 else as_levels(row, ids)
    else:
        ids = ids if whole else ids[: params.top_k]
        if typical_p < 1:
            ids = typical(row, ids, typical_p)
        if top_p < 1:
            ids = ids[np.lexsort((ids, -row[ids]))]
            mass = np.cumsum(np.exp(row[ids].astype(np.float64) - row[ids][0]))
            ids = ids[: int(np.searchsorted(mass / mass[-1], top_p)) + 1]
    if min_p > 0:
        ids = ids[row[ids] >= row[ids].max() + np.log(min_p)]
    if params.temperature == 0:
        best = int(np.lexsort((ids, -row[ids]))[0])
        return Distribution(row[ids[[best]]], ids[[best]], 1.0)
    return Distribution(row[ids], ids, plain_temperature(row[ids], params))


def plain_temperature(logits: Row, params: SamplingParams) -> float:
    """By the entropy of what is left, where the temperature is dynamic."""
    possible = logits[logits > -np.inf].astype(np.float64)
    if not params.dynatemp_range or possible.size == 1:
        return params.temperature
    weights = np.exp(possible - possible.max())
    p = weights / weights.sum()
    entropy = -sum(each * math.log(each) for each in p.tolist() if each)
    lowest = max(0.0, params.temperature - params.dynatemp_range)
    highest = params.temperature + params.dynatemp_range
    share = min(1.0, entropy / math.log(possible.size))
    return float(lowest + (highest - lowest) * share**params.dynatemp_exponent)


def top_p_count(row: Row, order: Ids, top_p: np.float32) -> int:
    """How many of all tokens reach top-p: in single precision, as the row is."""
    with np.errstate(over="ignore"):
        weights = np.exp(row - row.max())
        descending = np.exp(row[order] - row.max())
    mass = np.cumsum(descending, dtype=np.float64) / weights.sum(dtype=np.float64)
    return min(int(np.searchsorted(mass, top_p)) + 1, row.size)


def as_levels(row: Row, ids: Ids) -> Ids:
    """Many tokens of top-p stand by id: those above the last one's logit, then those level."""
    last = row[ids[-1]]
    above, level = np.sort(ids[row[ids] > last]), np.sort(ids[row[ids] == last])
    return np.concatenate([above, level])


def typical(row: Row, ids: Ids, typical_p: np.float32) -> Ids:
    scores = row[ids].astype(np.float64) - row[ids][0]
    weights = np.exp(scores)
    probabilities, surprise = weights / weights.sum(), np.log(weights.sum()) - scores
    possible = probabilities > 0
    entropy = (probabilities[possible] * surprise[possible]).sum()
    order = np.argsort(np.abs(surprise - entropy), kind="stable")
    mass = np.cumsum(probabilities[order])
    return np.asarray(ids[order[: int(np.searchsorted(mass, typical_p, side="right")) + 1]])


def plain_choice(noise: Noise, distribution: Distribution, position: int) -> int:
    """The token with the largest sum of score and noise; of equal sums, the first one."""
    ids = np.arange(len(distribution)) if distribution.ids is None else distribution.ids
    return int(ids[(distribution.scores() + noise.gumbel(position, ids)).argmax()])


def plain_stateful(
    row: Row, params: SamplingParams, state: float
) -> tuple[list[float], list[float | None]]:
    """Mirostat and adaptive-p: the probability of each token, and the state after it.

    The state is None after a token without a probability.
    """
    if params.mirostat:
        every = plain_softmax((row.astype(np.float64) / params.temperature).tolist())
        order = sorted(range(row.size), key=lambda token: (-row[token], token))
        if params.mirostat == 1:
            kept = order[: max(1, min(int(plain_count(every, state)), row.size))]
        else:
            kept = [token for token in order if every[token] >= 2**-state] or order[:1]
        total, chances = sum(every[token] for token in kept), [0.0] * row.size
        for token in kept:
            chances[token] = every[token] / total
        moved = [
            state - params.mirostat_eta * (-math.log2(each) - params.mirostat_tau) if each else None
            for each in chances
        ]
        return chances, moved
    left = plain_distribution(row, params).dense(row.size).tolist()
    aim = min(1.0, max(0.0, 2 * params.adaptive_target - state))
    logits = []
    for each in left:
        away = abs(each - aim) / 0.3
        logit = np.float32(5 - 10 * away * away / (1 + away))
        logits.append(float(logit) if each else -math.inf)
    decay = min(params.adaptive_decay, 0.99)
    moved = [decay * state + (1 - decay) * each if each else None for each in left]
    return plain_softmax(logits), moved


def plain_softmax(logits: list[float]) -> list[float]:
    top = max(logits)
    weights = [math.exp(each - top) for each in logits]
    total = sum(weights)
    return [each / total for each in weights]


def plain_count(chances: list[float], state: float) -> float:
    """How many of the likeliest tokens the first mirostat keeps, before it is made a number."""
    likely = [each for each in sorted(chances, reverse=True)[:100] if each]
    if len(likely) == 1:
        return 1.0
    above = below = 0.0
    for rank, (more, less) in enumerate(itertools.pairwise(likely), start=1):
        step = math.log((rank + 1) / rank)
        above += step * math.log(more / less)
        below += step * step
    exponent = above / below
    size, excess = len(chances), exponent - 1
    if not exponent:
        return size if 2**state > size - 1 else 1.0
    if not excess:
        return 2**state / math.log(size)
    base: float = excess * 2**state / (1 - size**-excess)
    return base ** (1 / exponent) if math.log(base) / exponent < 700 else math.inf
