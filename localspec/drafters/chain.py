"""Chain: the tokens that a model drafts one after the other, drawn as the target draws its own."""

import numpy as np
from numpy.typing import NDArray

from localspec.drafters.confidence import margin
from localspec.sampling.distribution import Distribution
from localspec.sampling.filters import BrokenLogitsError, NoTokenError
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Limit


class Chain:
    """A draft that grows token by token.

    limit: of the proposal; its sampler draws the tokens. depth: the most tokens. n_vocab: the
    target's vocabulary size; a drafter's model may have more tokens, which are not drawn.
    """

    def __init__(self, limit: Limit, depth: int, n_vocab: int) -> None:
        self.tokens: list[int] = []
        self._limit = limit
        self._depth = depth
        self._n_vocab = n_vocab
        self._prefix = limit.prefix
        self._probs: list[Distribution] = []

    @property
    def draft(self) -> Draft:
        """The tokens drawn so far."""
        return Draft(self.tokens, probs=self._probs or None)

    def draw(self, logits: NDArray[np.float32], confidence: float | None = None) -> bool:
        """Draw the next token; returns whether to draw another one.

        logits: those after the last token of the chain, (n,) with n >= n_vocab. The chain ends if
        they allow no token, because the drafter knows only some and a grammar forbids these, or if
        they contain NaN or +inf, as those of broken weights do.
        confidence: of the drafter in the token; None: its `margin`.
        """
        sampler, row = self._limit.sampler, logits[: self._n_vocab]
        try:
            proposal = sampler.distribution(row, self._prefix)
        except (BrokenLogitsError, NoTokenError):
            return False
        if self._limit.needs_probs:
            self._probs.append(proposal.kept())
        token = sampler.sample(proposal, self._prefix)
        self.tokens.append(token)
        go_on, prefix = self._limit.go_on, self._prefix
        self._prefix = prefix.then(token)
        if go_on is not None:
            if confidence is None:
                confidence = margin(row, proposal, token, sampler, prefix)
            if not go_on(confidence):
                return False
        return len(self.tokens) < self._depth
