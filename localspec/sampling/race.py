"""Race: the token with the largest sum of score and noise, found with half of the noise.

A token whose weight is exp(score) arrives after E / weight, where E = -log(1 - w) is exponential;
noise is -log(E), so the first to arrive has the largest sum. The coarse word of the hash alone says
w up to 2**-32. That nearly always tells who is first, for half of the hash and one logarithm.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.sampling.block_maxima import Row
from localspec.sampling.distribution import relative_scores
from localspec.sampling.keyed_hash import Ids, coarse_words, hashed, mixed

# w is at least the coarse word times this, plus that: no token can arrive earlier.
_COARSE, _LEAST = 2.0**-32, 2.0**-65
_MINUS_COARSE, _MINUS_LEAST = np.array(-_COARSE), np.array(-_LEAST)
# The fine word delays a token by one part in its coarse word, and so by little more than 2**-12 of
# its time where E lies between these. Nobody else may have this share of the speed of the first.
_EARLY, _LATE = -math.log1p(-(2.0**-20)), -math.log1p(2.0**-20 - 1)
_NEAR = 1 - 2.0**-10
# Python's own numbers are quicker than numpy for so many tokens.
_FEW = 8


def first(
    logits: Row, ids: Ids, top: np.float32, temperature: float, keys: Sequence[int]
) -> int | None:
    """The index of the token with the largest sum of score and noise; None if it is not certain.

    logits: (n,), n >= 1. ids: (n,). top: the largest logit. keys: from `coarse_keys_of`.
    """
    if ids.size <= _FEW:
        return _first_of_few(logits.tolist(), ids.tolist(), float(top), temperature, keys)
    words = hashed(mixed(ids), [np.array(key, np.uint32) for key in keys])
    times: NDArray[np.float64] = words * _MINUS_COARSE
    times += _MINUS_LEAST
    np.log1p(times, out=times)
    # Times are negative here, and so are speeds: the least is the quickest.
    speeds = np.exp(relative_scores(logits, top, temperature)) / times
    found = int(speeds.argmin())
    alone = np.count_nonzero(speeds <= speeds[found] * _NEAR) == 1
    return found if alone and _EARLY < -times[found] < _LATE else None


def _first_of_few(
    logits: list[float], ids: list[int], top: float, temperature: float, keys: Sequence[int]
) -> int | None:
    found, quickest, second, its_time = _two_quickest(logits, ids, top, temperature, keys)
    return found if second < quickest * _NEAR and _EARLY < its_time < _LATE else None


def leader(
    logits: Sequence[float], ids: Sequence[int], temperature: float, keys: Sequence[int]
) -> tuple[int, float]:
    """The index of the token that is first by the coarse half of the noise, and its lead.

    The lead is its sum of score and noise minus that of the second; infinity without a second. In
    one row of a thousand the fine half would say otherwise. logits, ids, keys: as for `first`.
    """
    found, quickest, second, _ = _two_quickest(logits, ids, max(logits), temperature, keys)
    return found, math.log(quickest / second) if second > 0 else math.inf


def _two_quickest(
    logits: Sequence[float],
    ids: Sequence[int],
    top: float,
    temperature: float,
    keys: Sequence[int],
) -> tuple[int, float, float, float]:
    """The index of the quickest token, its speed, that of the second, and the time of the first."""
    found, quickest, second, its_time = 0, -1.0, -1.0, 0.0
    exp, log1p = math.exp, math.log1p
    words = coarse_words(ids, keys)
    for index, (logit, word) in enumerate(zip(logits, words, strict=True)):
        time = -log1p(-(word * _COARSE + _LEAST))
        speed = exp((logit - top) / temperature) / time
        if speed > quickest:
            found, quickest, second, its_time = index, speed, quickest, time
        elif speed > second:
            second = speed
    return found, quickest, second, its_time
