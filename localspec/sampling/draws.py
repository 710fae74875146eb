"""Draws: a sequence of independent random draws from a seed.

The rejection rules need fresh randomness at every step: when a position is drafted again, the
random numbers of its rejected draft must not be reused (ALGORITHMS: a position-keyed `block` rule
is measurably wrong).
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.sampling.distribution import Distribution


class Randomness(Protocol):
    """The two kinds of draws in a rejection rule. A test may enumerate all outcomes instead."""

    def bern(self, p: float) -> bool:
        """True with probability p."""
        ...

    def cat(self, weights: NDArray[np.float64]) -> int:
        """An index; its probability is proportional to its weight."""
        ...


class Draws:
    """A seeded sequence of draws.

    seed: 0 to 2**64 - 1.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def bern(self, p: float) -> bool:
        """True with probability p."""
        return bool(self._generator.random() < p)

    def cat(self, weights: NDArray[np.float64]) -> int:
        """An index; its probability is proportional to its weight, so it is never of weight 0."""
        reached = np.cumsum(weights)
        # random() is below 1, so the product stays below the total and the index in range.
        return int(np.searchsorted(reached, self._generator.random() * reached[-1], side="right"))

    def sample(self, distribution: Distribution, position: int) -> int:
        """A token of this distribution. position: not used."""
        return distribution.token(self.cat(distribution.probabilities()))
