"""Prompt log-probabilities: how likely the target finds each token of a prompt."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.sampling.filters import require_possible
from localspec.speculation.emission import Emission
from localspec.speculation.passes import WIDE
from localspec.utils.tokens import common_prefix

ORIGIN = "prompt"


class PromptLogprobs:
    """The log-probabilities of a prompt's tokens, as far as its passes were computed.

    tokens: the prompt. top: how many of the likeliest tokens are listed at each place. before:
    those of an earlier prompt: what both begin with is not computed again, where it was computed by
    wide passes. known: the first tokens, with theirs; nothing comes before the very first, which
    has none.
    """

    def __init__(
        self, tokens: Sequence[int], top: int, before: "PromptLogprobs | None" = None
    ) -> None:
        self.tokens = list(tokens)
        self.top = top
        self.known = [Emission(self.tokens[0], ORIGIN)]
        # A short prompt is read by a narrow pass.
        shortest = min(len(before.tokens), len(self.tokens)) if before else 0
        if before and before.top == top and shortest > WIDE:
            self.known = before.known[: common_prefix(before.tokens, self.tokens)] or self.known

    @property
    def size(self) -> int:
        """How many log-probabilities the whole prompt has."""
        return len(self.tokens) * (1 + self.top)

    @property
    def most_held(self) -> int:
        """How many tokens a cache may hold already: the others are read, by a wide pass at last.

        The digits of that pass are those of a prompt that was never read before.
        """
        return max(0, min(len(self.known) - 1, len(self.tokens) - 1 - WIDE))

    def take(self, start: int, logits: NDArray[np.float32]) -> None:
        """Take the logits behind the tokens from the place `start` on, (tokens, n_vocab).

        Those behind the last token are of no token of the prompt. Raises BrokenLogitsError.
        """
        for place, row in enumerate(logits, start=start + 1):
            if place == len(self.known):
                require_possible(row.max())
                self.known.append(Emission.scored(self.tokens[place], ORIGIN, row, self.top))
