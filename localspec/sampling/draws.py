"""Draws: independent random draws, one after the other, from a seed.

The rejection rules need fresh randomness at every step: what was drawn for a position and thrown
away must not come back when the position is drafted again (ALGORITHMS: a position-keyed `block`
rule is measurably wrong).
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.sampling.distribution import Distribution


class Randomness(Protocol):
    """The two ways a rejection rule draws; a test may replay every branch of them."""

    def bern(self, p: float) -> bool:
        """True with probability p."""
        ...

    def cat(self, weights: NDArray[np.float64]) -> int:
        """An index, with probability in proportion to its weight."""
        ...


class Draws:
    """A sequence of draws that a seed decides.

    seed: 0 to 2**64 - 1.
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def bern(self, p: float) -> bool:
        """True with probability p."""
        return bool(self._generator.random() < p)

    def cat(self, weights: NDArray[np.float64]) -> int:
        """An index, with probability in proportion to its weight; never one of weight zero."""
        reached = np.cumsum(weights)
        # random() is below 1, so the product stays below the total and the index in range.
        return int(np.searchsorted(reached, self._generator.random() * reached[-1], side="right"))

    def sample(self, distribution: Distribution, position: int) -> int:
        """A token of this distribution; the position does not matter."""
        return distribution.token(self.cat(distribution.probabilities()))
