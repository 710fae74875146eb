"""Sampler: the settings and the randomness of one generation, shared by target and drafters."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from localspec.sampling.block_maxima import Row
from localspec.sampling.distribution import Distribution
from localspec.sampling.filters import distribution
from localspec.sampling.noise import Noise, RandomSource
from localspec.sampling.params import SamplerState, SamplingParams
from localspec.sampling.prefix import Constraint, Prefix
from localspec.sampling.xtc import applies
from localspec.utils.media import words_of


@dataclass(frozen=True, slots=True)
class Sampler:
    """Turns logits into a distribution, and samples tokens from it.

    ends: tokens that end a text; they are forbidden before position `earliest_end`.
    constraint: which tokens may follow the prompt; None allows all. earlier: the state of mirostat
    or adaptive-p that tokens of the text have left which are in the prompt.
    """

    params: SamplingParams
    randomness: RandomSource
    ends: Sequence[int] = ()
    earliest_end: int = 0
    constraint: Constraint | None = None
    earlier: SamplerState | None = None

    def prefix(self, text: Sequence[int]) -> Prefix:
        """The prefix that consists of the prompt `text`; penalties read its words alone."""
        window = self.params.window
        words = words_of(text) if window else ()
        recent = tuple(words[-window:] if window > 0 else words)
        state = self.params.state_behind(self.earlier)
        return Prefix(len(text), window, recent, self.constraint, state)

    def distribution(self, logits: Row, prefix: Prefix) -> Distribution:
        """The distribution of the token after `prefix`. logits: (n,) float32, n <= n_vocab."""
        return self._distribution(logits, prefix, only_sampled=False)

    def sampled_once(self, logits: Row, prefix: Prefix) -> Distribution:
        """The same, of which one sample is taken before the next decode, and nothing more."""
        return self._distribution(logits, prefix, only_sampled=True)

    def sample(self, distribution: Distribution, prefix: Prefix) -> int:
        """Sample the token after `prefix`."""
        return self.randomness.sample(distribution, prefix.position)

    def foresee(self, positions: Sequence[int]) -> None:
        """Prepare sampling at positions to come, while the target computes."""
        if isinstance(self.randomness, Noise):
            self.randomness.foresee(positions)

    def _distribution(self, logits: Row, prefix: Prefix, *, only_sampled: bool) -> Distribution:
        row = self._permitted(logits, prefix)
        xtc = applies(self.params, self.randomness.seed, prefix.position)
        return distribution(
            row,
            self.params,
            prefix.recent,
            xtc=xtc,
            state=prefix.state,
            only_sampled=only_sampled,
        )

    def _permitted(self, logits: Row, prefix: Prefix) -> Row:
        """The logits with -inf for forbidden tokens; a copy only if there may be such tokens."""
        too_early = prefix.position < self.earliest_end
        if not too_early and prefix.constraint is None:
            return logits
        if prefix.constraint is None:
            row = logits.copy()
        else:
            allowed = prefix.constraint.allowed()[: logits.size]
            row = np.where(allowed, logits, np.float32(-np.inf))
        if too_early:
            row[[token for token in self.ends if token < row.size]] = -np.inf
        return row
