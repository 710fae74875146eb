"""Every random branch of a piece of code, replayed: its exact output distribution.

The code under test draws through `choose(distribution, position)`. Here that call branches. What
is replaced is the noise, nothing else: rules, loop, drafters and filters are the real ones.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from localspec.sampling.distribution import Distribution

# Of what is not enumerated: at which positions XTC applies.
SEED = 6


class Branches:
    """One run through the tree of choices; `exact` makes as many as there are leaves."""

    def __init__(self, prefix: Sequence[int]) -> None:
        self.probability = 1.0
        self.taken: list[int] = []
        self.alternatives: list[list[int]] = []
        self._prefix = prefix

    def cat(self, weights: Sequence[float]) -> int:
        """An index drawn with these weights (which sum to 1)."""
        possible = [i for i, weight in enumerate(weights) if weight > 0]
        at = len(self.taken)
        index = self._prefix[at] if at < len(self._prefix) else possible[0]
        self.alternatives.append([i for i in possible if i > index])
        self.taken.append(index)
        self.probability *= weights[index]
        return index


def exact(run: Callable[[Branches], Hashable]) -> dict[Hashable, float]:
    """Outcome -> probability, over every branch of `run`."""
    outcomes: dict[Hashable, float] = defaultdict(float)
    waiting: list[list[int]] = [[]]
    while waiting:
        branches = Branches(waiting.pop())
        outcome = run(branches)
        outcomes[outcome] += branches.probability
        for at in range(len(branches._prefix), len(branches.taken)):
            for other in branches.alternatives[at]:
                waiting.append([*branches.taken[:at], other])
    return dict(outcomes)


class OneDrawPerPosition:
    """Noise for runs where only the target draws: an independent draw at each position."""

    seed = SEED

    def __init__(self, branches: Branches) -> None:
        self._branches = branches
        self._drawn: set[int] = set()

    def sample(self, distribution: Distribution, position: int) -> int:
        assert position not in self._drawn, "the noise of a position was used twice"
        self._drawn.add(position)
        return distribution.token(self._branches.cat(distribution.probabilities()))


class Drawn:
    """Independent draws, for the rejection rules and their drafters: each one branches."""

    seed = SEED

    def __init__(self, branches: Branches) -> None:
        self._branches = branches

    def bern(self, p: float) -> bool:
        return self._branches.cat([1 - p, p]) == 1

    def cat(self, weights: np.ndarray) -> int:
        return self._branches.cat(list(weights / weights.sum()))

    def sample(self, distribution: Distribution, position: int) -> int:
        return distribution.token(self.cat(distribution.probabilities()))


class SharedNoise:
    """Noise over three tokens that target and drafter share, in closed form.

    Gumbel noise g is -log E with E exponential, and the token of largest score + noise is that of
    smallest E / p. Only the ratios of E matter: as barycentric coordinates they are uniform on a
    triangle, and each draw cuts from it the polygon where that token wins. What is left of a
    position's triangle after the draws so far is kept; the areas give the branch probabilities.
    """

    seed = SEED

    def __init__(self, branches: Branches) -> None:
        self._branches = branches
        self._left: dict[int, np.ndarray] = defaultdict(lambda: np.eye(3))

    def sample(self, distribution: Distribution, position: int) -> int:
        p = distribution.dense(3)
        support = [token for token in range(3) if p[token] > 0]
        regions = [self._region(position, token, p, support) for token in support]
        areas = np.array([_area(region) for region in regions])
        # Rounding leaves slivers where two draws exclude each other.
        areas[areas < 1e-14 * areas.sum()] = 0
        chosen = self._branches.cat(list(areas / areas.sum()))
        self._left[position] = regions[chosen]
        return support[chosen]

    def _region(
        self, position: int, token: int, p: np.ndarray, support: Sequence[int]
    ) -> np.ndarray:
        region = self._left[position]
        for other in support:
            if other != token:
                side = np.zeros(3)
                side[token], side[other] = p[other], -p[token]
                region = _clipped(region, side)
        return region


def _clipped(polygon: np.ndarray, side: np.ndarray) -> np.ndarray:
    """The part of a convex polygon, (n, 3) corners, where side . x <= 0."""
    corners = []
    for first, second in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        a, b = first @ side, second @ side
        if a <= 0:
            corners.append(first)
        if a * b < 0:
            corners.append(first + (second - first) * (a / (a - b)))
    return np.array(corners).reshape(-1, 3)


def _area(polygon: np.ndarray) -> float:
    if len(polygon) < 3:
        return 0.0
    x, y = polygon[:, 0], polygon[:, 1]
    return float(abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2)


def total_variation(first: dict[Hashable, float], second: dict[Hashable, float]) -> float:
    """Half the summed absolute difference of two distributions."""
    keys = first.keys() | second.keys()
    return sum(abs(first.get(key, 0.0) - second.get(key, 0.0)) for key in keys) / 2
