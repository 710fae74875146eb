"""Sampler: the settings and the noise of one generation, shared by target and drafter."""

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.sampling.distribution import Distribution
from localspec.sampling.filters import Row, distribution
from localspec.sampling.noise import Choice
from localspec.sampling.params import SamplingParams


@dataclass(frozen=True, slots=True)
class Sampler:
    """Turns logits into a distribution, and a distribution into the token of a position."""

    params: SamplingParams
    noise: Choice

    def recent(self, text: Sequence[int]) -> list[int]:
        """As much of the end of `text` as the penalties look at; empty when none is on."""
        if not self.params.penalises:
            return []
        window = self.params.penalty_window
        return list(text if window < 0 else text[-window:])

    def distribution(self, logits: Row, recent: Sequence[int]) -> Distribution:
        """logits: (n_vocab,) float32. recent: the text before this token, or its recent end."""
        return distribution(logits, self.params, recent)

    def choose(self, distribution: Distribution, position: int) -> int:
        """The token of this position; see `Noise.choose`."""
        return self.noise.choose(distribution, position)
