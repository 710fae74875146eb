"""Mirostat and adaptive-p: samplers with a state, which the chance of each drawn token moves.

The state is one number. It starts anew with each answer, and is part of the prefix: behind a
drafted token it is what the target's own distributions make of the text with that token. So it is a
pure function of the settings and the tokens before, whatever is drafted, and every rule keeps such
a target.

Mirostat 2.0 keeps the tokens that carry no more information than its state says, in bits; the
first mirostat estimates from the likeliest tokens how many that are (Basu et al. 2021). The state
rises where tokens carry less than `mirostat_tau`. No other filter is on beside them.

Adaptive-p comes behind all filters, and makes tokens likely whose probability is near a target; it
moves that target against the mean of what was drawn.

The meanings are those of llama.cpp's samplers of these names.
"""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.sampling.block_maxima import BlockMaxima, Ids, Row
from localspec.sampling.distribution import (
    LARGEST_FLOAT32,
    Distribution,
    logit_at,
    relative_scores,
)
from localspec.sampling.params import SamplingParams

# The first mirostat looks at so many of the likeliest tokens.
_LIKELIEST = 100
# Adaptive-p: logits fall from the peak with the square of the distance near the target, and in
# proportion to it further away; distances are in units of the width.
_PEAK, _SHARPNESS, _WIDTH = 5.0, 10.0, 0.3
_MOST_DECAY = 0.99
_LN_2 = math.log(2)


@dataclass(frozen=True)
class Stateful(Distribution):
    """A distribution from which a drawn token moves the sampler's state.

    chances: (n,) the probabilities that move it. move: the state after a token with this one.
    """

    _: KW_ONLY
    chances: NDArray[np.float64]
    move: Callable[[float], float]

    def state_after(self, token: int) -> float | None:
        """See Distribution."""
        index = self.index(token)
        return None if index is None else self.move(float(self.chances[index]))

    def kept(self) -> Distribution:
        """Itself: its logits are no view of a model's buffer."""
        return self


def by_mirostat(row: BlockMaxima, params: SamplingParams, state: float) -> Distribution:
    """What mirostat leaves of a row. state: the most information of a token, in bits."""
    find = _likeliest if params.mirostat == 1 else _up_to
    values, ids = find(row, params.temperature, state)
    left = Distribution(values, ids, params.temperature)

    def move(chance: float) -> float:
        surprise = -math.log2(chance) if chance else math.inf
        moved = state - params.mirostat_eta * (surprise - params.mirostat_tau)
        return moved if math.isfinite(moved) else state

    return Stateful(values, ids, params.temperature, chances=left.probabilities(), move=move)


def by_adaptive_p(left: Distribution, params: SamplingParams, state: float) -> Distribution:
    """What the filters leave, likely where it is near the target.

    state: the mean probability of what was drawn, in which older tokens count less.
    """
    target, decay = params.adaptive_target, min(params.adaptive_decay, _MOST_DECAY)
    chances = left.probabilities()
    distances = np.abs(chances - min(1.0, max(0.0, 2 * target - state))) / _WIDTH
    logits = (_PEAK - _SHARPNESS * distances**2 / (1 + distances)).astype(np.float32)
    logits[left.logits == -np.inf] = -np.inf

    def move(chance: float) -> float:
        return decay * state + (1 - decay) * chance

    return Stateful(logits, left.ids, adaptive=True, chances=chances, move=move)


def _up_to(row: BlockMaxima, temperature: float, bits: float) -> tuple[Row, Ids]:
    """The tokens that carry no more information than so many bits, or the likeliest one."""
    with np.errstate(over="ignore"):  # the difference of two float32 may be -infinity
        scores = (row.entries - row.top) / np.float32(min(temperature, LARGEST_FLOAT32))
    total = np.exp(scores, out=scores).sum(dtype=np.float64)
    least = math.log(total) - bits * _LN_2
    if least > 0:
        return row.largest(1)
    return row.found(logit_at(least, row.top, temperature))


def _likeliest(row: BlockMaxima, temperature: float, bits: float) -> tuple[Row, Ids]:
    """As many of the likeliest tokens as the first mirostat estimates, by Zipf's law.

    Where fewer than `_LIKELIEST` tokens are possible, it is estimated from those.
    """
    scores = relative_scores(row.largest(_LIKELIEST)[0], row.top, temperature)
    scores = scores[scores > -np.inf]
    if scores.size == 1:
        return row.largest(1)
    steps = np.log1p(1 / np.arange(1, scores.size))
    exponent = float(-(steps @ np.diff(scores)) / (steps @ steps))
    size = row.entries.size
    excess, log_size = exponent - 1, math.log(size)
    growth = excess / -math.expm1(-excess * log_size) if excess else 1 / log_size
    if exponent:
        log_count = (math.log(growth) + bits * _LN_2) / exponent
    else:  # all are equally likely, and logarithms would round what is just as much
        log_count = log_size if bits > math.log2(size - 1) else 0.0
    count = size if log_count >= log_size else max(1, int(math.exp(log_count)))
    values, ids = row.largest(count)
    possible = values > -np.inf
    return values[possible], ids[possible]
