"""Gumbel noise from random words, and bounds of it."""

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

# Arrays without a dimension: numpy is quicker with them than with Python's numbers.
_HALF, _FINE, _COARSE, _LARGEST = map(np.array, (0.5, 2.0**-64, 2.0**-32, 1 - 2.0**-53))


def from_words(coarse: Words, fine: Words) -> NDArray[np.float64]:
    """-log(-log(1 - w)) with w = (coarse, fine) as a 64-bit fraction in (0, 1).

    Small w is large noise, so the tokens that win are the ones computed most precisely.
    """
    w: NDArray[np.float64] = fine + _HALF
    w *= _FINE
    w += coarse * _COARSE
    np.minimum(w, _LARGEST, out=w)
    np.log1p(np.negative(w, out=w), out=w)
    np.log(np.negative(w, out=w), out=w)
    return np.negative(w, out=w)


def at_most(coarse: int) -> float:
    """An upper bound of the noise of a token with this coarse word or a larger one."""
    w = max(coarse * 2.0**-32, 2.0**-65)
    return float(-np.log(-np.log1p(-w)))


def largest_coarse(noise: float) -> np.uint32:
    """The largest coarse word whose noise can reach this value."""
    w = -np.expm1(-np.exp(-noise)) if noise > -700 else 1.0
    return np.uint32(min(int(w * 2.0**32) + 1, 0xFFFFFFFF))
