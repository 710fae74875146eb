"""Noise: seeded Gumbel noise, a pure function of (seed, position, token id).

The token with the largest sum of score and noise is a sample of the distribution (the Gumbel-max
trick). Target and drafter use the same noise, so they sample the same token wherever their
distributions are close enough, and a text depends only on target, prompt, sampler and seed
(Daliri, Musco, Suresh 2024, "Coupling without communication").
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.errors import InvalidValueError
from localspec.sampling.distribution import Distribution, relative_scores

Words = NDArray[np.uint32]

_MASK64 = (1 << 64) - 1
# Up to this many tokens, all noise is computed; beyond, only that of tokens that can win.
_FEW = 1024
_LEAST_FLOAT32 = float(np.finfo(np.float32).min)


class RandomSource(Protocol):
    """The randomness of a generation: samples a token for a position of the text."""

    def sample(self, distribution: Distribution, position: int) -> int: ...


class Noise:
    """The Gumbel noise of one seed.

    seed: 0 to 2**64 - 1.
    """

    def __init__(self, seed: int) -> None:
        if not 0 <= seed <= _MASK64:
            raise InvalidValueError(f"seed is {seed}; it must be from 0 to 2**64 - 1")
        self.seed = seed
        self._spreads: dict[int, Words] = {}

    def gumbel(self, position: int, ids: NDArray[np.integer]) -> NDArray[np.float64]:
        """Standard Gumbel noise of these tokens at this position of the text. ids: (n,) -> (n,)."""
        keys = _keys(self.seed, position)
        spread = _spread(ids)
        return _gumbel(_hash(spread, keys[:3]), _hash(spread, keys[3:]))

    def sample(self, distribution: Distribution, position: int) -> int:
        """Sample a token: the argmax of score + noise at this position."""
        if len(distribution) == 1:
            return distribution.token(0)
        if len(distribution) <= _FEW:
            ids = np.arange(len(distribution)) if distribution.ids is None else distribution.ids
            return int(ids[(distribution.scores() + self.gumbel(position, ids)).argmax()])
        return self._sample_from_many(distribution, position)

    def _sample_from_many(self, distribution: Distribution, position: int) -> int:
        """The same argmax, but with logarithms only for tokens that can still win.

        The coarse word of a token's noise gives an upper bound of the noise. The largest sum among
        some likely tokens and the token with the largest noise is a lower bound of the winner's.
        """
        keys = _keys(self.seed, position)
        ids, logits = distribution.ids, distribution.logits
        spread = self._spread_all(logits.size) if ids is None else _spread(ids)
        coarse = _hash(spread, keys[:3])
        top, temperature = logits.max(), distribution.temperature

        def perturbed(entries: NDArray[np.intp]) -> NDArray[np.float64]:
            noise = _gumbel(coarse[entries], _hash(spread[entries], keys[3:]))
            return np.asarray(relative_scores(logits[entries], top, temperature) + noise)

        def logit_at(score: float) -> np.float32:
            return np.float32(max(float(top) + score * temperature, _LEAST_FLOAT32))

        luckiest = int(coarse.argmin())
        likely = np.flatnonzero(logits >= logit_at(-2.0))[:_FEW]
        to_beat = float(perturbed(np.append(likely, luckiest)).max())
        # The margin covers rounding errors; an extra candidate does not change the result.
        least_score = to_beat - _gumbel_at_most(int(coarse[luckiest])) - 1e-6
        alive = (coarse <= _coarse_bound(to_beat)) & (logits >= logit_at(least_score))
        entries = np.flatnonzero(alive)
        return distribution.token(int(entries[perturbed(entries).argmax()]))

    def _spread_all(self, n: int) -> Words:
        if n not in self._spreads:
            self._spreads[n] = _spread(np.arange(n))
        return self._spreads[n]


def _spread(ids: NDArray[np.integer]) -> Words:
    return ids.astype(np.uint32) * np.uint32(0x9E3779B1)


def _keys(seed: int, position: int) -> tuple[np.uint32, ...]:
    """Six 32-bit keys from (seed, position), by the splitmix64 finaliser."""
    state = _splitmix(_splitmix(seed) ^ (position & _MASK64))
    words = []
    for _ in range(3):
        state = _splitmix(state)
        words += [np.uint32(state & 0xFFFFFFFF), np.uint32(state >> 32)]
    return tuple(words)


def derive_seed(seed: int, *numbers: int) -> int:
    """A seed derived from another seed and from these numbers."""
    for number in numbers:
        seed = _splitmix(_splitmix(seed) ^ (number & _MASK64))
    return seed


def _splitmix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)


def _hash(spread: Words, keys: tuple[np.uint32, ...]) -> Words:
    """A keyed bijection of 32-bit words: multiply-xorshift rounds with a key between them."""
    x = spread ^ keys[0]
    shifted = x >> np.uint32(16)
    x ^= shifted
    x *= np.uint32(0x7FEB352D)
    x += keys[1]
    np.right_shift(x, np.uint32(15), out=shifted)
    x ^= shifted
    x *= np.uint32(0x846CA68B)
    x += keys[2]
    np.right_shift(x, np.uint32(16), out=shifted)
    x ^= shifted
    return x


def _gumbel(coarse: Words, fine: Words) -> NDArray[np.float64]:
    """-log(-log(1 - w)) with w = (coarse, fine) as a 64-bit fraction in (0, 1).

    Small w is large noise, so the tokens that win are the ones computed most precisely.
    """
    w = coarse * 2.0**-32 + (fine + 0.5) * 2.0**-64
    return np.asarray(-np.log(-np.log1p(-np.minimum(w, 1 - 2.0**-53))))


def _gumbel_at_most(coarse: int) -> float:
    """An upper bound of the noise of a token with this coarse word or a larger one."""
    w = max(coarse * 2.0**-32, 2.0**-65)
    return float(-np.log(-np.log1p(-w)))


def _coarse_bound(noise: float) -> np.uint32:
    """The largest coarse word whose noise can reach this value."""
    w = -np.expm1(-np.exp(-noise)) if noise > -700 else 1.0
    return np.uint32(min(int(w * 2.0**32) + 1, 0xFFFFFFFF))
