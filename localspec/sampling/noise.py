"""Noise: seeded Gumbel noise, a pure function of (seed, position, token id).

The token with the largest sum of score and noise is a sample of the distribution (the Gumbel-max
trick). Target and drafter use the same noise, so they sample the same token wherever their
distributions are close enough, and a text depends only on target, prompt, sampler and seed
(Daliri, Musco, Suresh 2024, "Coupling without communication").
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.errors import InvalidValueError
from localspec.sampling import gumbel, race
from localspec.sampling.block_maxima import BlockMaxima, Row
from localspec.sampling.distribution import (
    LEAST_FLOAT32,
    Distribution,
    Thresholded,
    logit_at,
    relative_scores,
)
from localspec.sampling.filters import Truncated
from localspec.sampling.keyed_hash import Ids, coarse_keys_of, hashed, keys_of, mixed
from localspec.sampling.lucky_tokens import NOISE_WITHOUT_LUCK, LuckyTokens

# Up to this many tokens, the noise of all is looked at; beyond, only that of tokens that can win.
_FEW = 1024
# Where more than so many are in blocks with tokens that can win, those with a score above this
# are considered first: they are likely to leave few others.
_FEW_ENTRIES = 16384
_LIKELY = -2.0


class RandomSource(Protocol):
    """The randomness of a generation: samples a token for a position of the text.

    seed: what all of it is derived from.
    """

    seed: int

    def sample(self, distribution: Distribution, position: int) -> int: ...


class Noise:
    """The Gumbel noise of one seed.

    seed: 0 to 2**64 - 1.
    """

    def __init__(self, seed: int) -> None:
        if not 0 <= seed < 1 << 64:
            raise InvalidValueError(f"seed is {seed}; it must be from 0 to 2**64 - 1")
        self.seed = seed
        self._lucky = LuckyTokens(seed)

    def gumbel(self, position: int, ids: Ids) -> NDArray[np.float64]:
        """Standard Gumbel noise of these tokens at this position of the text. ids: (n,) -> (n,)."""
        return gumbel.from_words(*hashed(mixed(ids), keys_of(self.seed, position)))

    def foresee(self, positions: Sequence[int]) -> None:
        """Prepare sampling at positions to come, in another thread, where that takes long."""
        self._lucky.foresee(positions)

    def sample(self, distribution: Distribution, position: int) -> int:
        """Sample a token: the argmax of score + noise at this position."""
        temperature = distribution.temperature
        if isinstance(distribution, Thresholded):
            return self._sample_from_row(
                distribution.row, distribution.bound, temperature, position
            )
        if isinstance(distribution, Truncated):
            (logits, ids, _), top = distribution.candidates, distribution.row.top
            first = race.first(logits, ids, top, temperature, coarse_keys_of(self.seed, position))
            if first is not None and distribution.leaves(first):
                return int(ids[first])
        if len(distribution) == 1:
            return distribution.token(0)
        if len(distribution) <= _FEW:
            ids = np.arange(len(distribution)) if distribution.ids is None else distribution.ids
            return self._sample_from_few(distribution, ids, position)
        if distribution.ids is None:
            maxima = distribution.maxima()
            return self._sample_from_row(maxima, LEAST_FLOAT32, temperature, position)
        return self._sample_from_many(distribution, distribution.ids, position)

    def leader(
        self, logits: Sequence[float], ids: Sequence[int], temperature: float, position: int
    ) -> tuple[int, float]:
        """The token that this position's noise draws, and its lead; see `race.leader`.

        logits, ids: (n,) a few. For guesses: the fine half of the noise is not computed.
        """
        keys = coarse_keys_of(self.seed, position)
        first, lead = race.leader(logits, ids, temperature, keys)
        return ids[first], lead

    def _sample_from_few(self, distribution: Distribution, ids: Ids, position: int) -> int:
        logits, keys = distribution.logits, coarse_keys_of(self.seed, position)
        first = race.first(logits, ids, logits.max(), distribution.temperature, keys)
        if first is None:
            first = int((distribution.scores() + self.gumbel(position, ids)).argmax())
        return int(ids[first])

    def _sample_from_row(
        self, row: BlockMaxima, bound: np.float32, temperature: float, position: int
    ) -> int:
        """The same argmax over all tokens with logits of at least `bound`, but few are looked at.

        The winner is lucky, or its score is high: the best sum so far less the noise that a token
        without luck can have is a lower bound of it.
        """
        winner, to_beat = -1, -np.inf

        def consider(logits: Row, ids: Ids, noise: NDArray[np.float64]) -> None:
            nonlocal winner, to_beat
            if not ids.size:
                return
            sums = relative_scores(logits, row.top, temperature) + noise
            best = int(sums.argmax())
            if sums[best] > to_beat or (sums[best] == to_beat and ids[best] < winner):
                winner, to_beat = int(ids[best]), float(sums[best])

        def consider_likely(least_score: float) -> None:
            likely, ids = row.found(least_logit(least_score))
            consider(likely, ids, self.gumbel(position, ids))

        def least_logit(score: float) -> np.float32:
            return max(logit_at(score, row.top, temperature), bound)

        ids, noise = self._lucky.at(position, row.entries.size)
        logits = row.entries.take(ids)
        if bound > LEAST_FLOAT32:
            possible = logits >= bound
            logits, ids, noise = logits[possible], ids[possible], noise[possible]
        consider(logits, ids, noise)
        # The margin covers rounding errors; an extra candidate does not change the result.
        beaten = NOISE_WITHOUT_LUCK + 1e-6
        if to_beat - beaten > 0:
            return winner
        if row.count_beside(least_logit(to_beat - beaten)) > _FEW_ENTRIES:
            consider_likely(_LIKELY)
            if to_beat - beaten > _LIKELY:
                return winner
        consider_likely(to_beat - beaten)
        return winner

    def _sample_from_many(self, distribution: Distribution, ids: Ids, position: int) -> int:
        """The same argmax over some tokens, but with logarithms only for those that can still win.

        The coarse word of a token's noise gives an upper bound of the noise. The largest sum among
        some likely tokens and the token with the largest noise is a lower bound of the winner's.
        """
        keys, logits = keys_of(self.seed, position), distribution.logits
        tokens = mixed(ids)
        coarse = hashed(tokens, keys[:, 0])
        top, temperature = logits.max(), distribution.temperature

        def perturbed(entries: NDArray[np.intp]) -> NDArray[np.float64]:
            noise = gumbel.from_words(coarse[entries], hashed(tokens[entries], keys[:, 1]))
            return np.asarray(relative_scores(logits[entries], top, temperature) + noise)

        luckiest = int(coarse.argmin())
        likely = np.flatnonzero(logits >= logit_at(_LIKELY, top, temperature))[:_FEW]
        to_beat = float(perturbed(np.append(likely, luckiest)).max())
        least_score = to_beat - gumbel.at_most(int(coarse[luckiest])) - 1e-6
        alive = (coarse <= gumbel.largest_coarse(to_beat)) & (
            logits >= logit_at(least_score, top, temperature)
        )
        entries = np.flatnonzero(alive)
        return distribution.token(int(entries[perturbed(entries).argmax()]))
