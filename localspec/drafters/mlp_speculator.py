"""MLP speculator: stages that draft one after the other, from the target's last row and each token.

Wertheimer et al. 2024, https://arxiv.org/abs/2404.19124. A state begins as the row of the last
evaluated token. Each stage mixes the embedding of the token before into it, first the pending one,
then that just drafted, and predicts the next token from the new state.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import erf, sqrt

import numpy as np

from localspec.drafters.chain import Chain
from localspec.drafters.output_row import Matrix, OutputRowDrafter, Vector

_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage.

    projection: of the state before. embedding: returns the embedding of a token. scale, shift: of
    the norm. output: from the state to logits.
    """

    projection: Matrix
    embedding: Callable[[int], Vector]
    scale: Vector
    shift: Vector
    output: Matrix

    def next_state(self, state: Vector, token: int, token_weight: float) -> Vector:
        """The state behind a token. token_weight: of its embedding beside the state before."""
        mixed = self.projection.times(state) + np.float32(token_weight) * self.embedding(token)
        return _gelu(_normed(mixed) * self.scale + self.shift)


class MlpSpeculator(OutputRowDrafter):
    """A drafter with the stages of an MLP speculator.

    scale_input: whether the target's row is normed first. known_tokens: how many tokens have an
    embedding; the target may have a few more, after which nothing is drafted.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        *,
        name: str,
        n_vocab: int,
        known_tokens: int,
        scale_input: bool,
    ) -> None:
        super().__init__(name=name, n_vocab=n_vocab, deepest=len(stages))
        self._stages = stages
        self._known_tokens = known_tokens
        self._scale_input = scale_input
        # The state of the last stage is half the first one in expectation, half the tokens. An
        # embedding is initialised with numbers that are smaller than a state's.
        state_weight = 0.5 ** (0.5 / len(stages))
        token_weight = sqrt((1 - state_weight**2) * len(stages[0].scale) / 2)
        self._token_weight = token_weight / state_weight

    def draw(self, chain: Chain, row: Vector, pending: int) -> None:
        """Draw one token of each stage."""
        state = _normed(row) / np.float32(sqrt(2)) if self._scale_input else row
        token = pending
        for stage in self._stages:
            if token >= self._known_tokens:
                return
            state = stage.next_state(state, token, self._token_weight)
            if not chain.draw(stage.output.times(state)):
                return
            token = chain.tokens[-1]


def _normed(values: Vector) -> Vector:
    normed: Vector = values / np.sqrt(np.mean(values * values) + np.float32(_EPSILON))
    return normed


def _gelu(values: Vector) -> Vector:
    """The exact one, with the error function, which numpy lacks."""
    erfs = np.fromiter(map(erf, values / sqrt(2)), np.float32, len(values))
    result: Vector = values * (1 + erfs) / np.float32(2)
    return result
