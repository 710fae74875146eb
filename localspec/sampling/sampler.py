"""Sampler: the settings and the randomness of one generation, shared by target and drafter."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from localspec.sampling.distribution import Distribution
from localspec.sampling.filters import Row, distribution
from localspec.sampling.noise import RandomSource
from localspec.sampling.params import SamplingParams
from localspec.sampling.prefix import Constraint, Prefix


@dataclass(frozen=True, slots=True)
class Sampler:
    """Turns logits into a distribution, and a distribution into the token of a position.

    ends: tokens that end a text; before position `earliest_end` they are forbidden.
    constraint: what may follow the prompt.
    """

    params: SamplingParams
    randomness: RandomSource
    ends: Sequence[int] = ()
    earliest_end: int = 0
    constraint: Constraint | None = None

    def prefix(self, text: Sequence[int]) -> Prefix:
        """The place after the prompt `text`."""
        window = self.params.penalty_window if self.params.penalises else 0
        recent = tuple(text[-window:] if window > 0 else text) if window else ()
        return Prefix(len(text), window, recent, self.constraint)

    def distribution(self, logits: Row, prefix: Prefix) -> Distribution:
        """What may follow `prefix`. logits: (n,) float32, n at most n_vocab."""
        return distribution(self._permitted(logits, prefix), self.params, prefix.recent)

    def sample(self, distribution: Distribution, prefix: Prefix) -> int:
        """The token that follows `prefix`."""
        return self.randomness.sample(distribution, prefix.position)

    def _permitted(self, logits: Row, prefix: Prefix) -> Row:
        """The logits, -inf where a token may not come; a copy only when there is such a token."""
        too_early = prefix.position < self.earliest_end
        if not too_early and prefix.constraint is None:
            return logits
        row = logits.copy()
        if too_early:
            row[[token for token in self.ends if token < row.size]] = -np.inf
        if prefix.constraint is not None:
            row[~prefix.constraint.allowed()[: row.size]] = -np.inf
        return row
