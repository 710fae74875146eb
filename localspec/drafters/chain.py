"""Chain: the tokens that a model drafts one after the other, drawn as the target draws its own."""

from itertools import starmap, zip_longest
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from localspec.drafters.confidence import margin
from localspec.errors import LocalspecError
from localspec.sampling.distribution import Distribution
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Limit


class Drawn(NamedTuple):
    """A drawn token, its confidence if that was asked for, and the sampler's state after it.

    The state is what the drafter's own distributions make of it (`Distribution.state_after`).
    """

    token: int
    confidence: float | None
    state: float | None


class Chain:
    """A draft that grows token by token.

    limit: of the proposal; its sampler draws the tokens. depth: the most tokens. n_vocab: the
    target's vocabulary size; a drafter's model may have more tokens, which are not drawn.
    confidences: of the drafter in each token, as far as `limit.go_on` asks for them.
    """

    def __init__(self, limit: Limit, depth: int, n_vocab: int) -> None:
        self.tokens: list[int] = []
        self.confidences: list[float] = []
        self._limit = limit
        self._depth = depth
        self._n_vocab = n_vocab
        self._prefix = limit.prefix
        self._states: list[float | None] = []
        self._probs: list[Distribution] = []

    @property
    def draft(self) -> Draft:
        """The tokens drawn so far."""
        return Draft(self.tokens, probs=self._probs or None)

    @property
    def drawn(self) -> list[Drawn]:
        """The tokens drawn so far."""
        return list(starmap(Drawn, zip_longest(self.tokens, self.confidences, self._states)))

    def draw(self, logits: NDArray[np.float32], confidence: float | None = None) -> bool:
        """Draw the next token; returns whether to draw another one.

        logits: those after the last token of the chain, (n,) with n >= n_vocab. The chain ends if
        they allow no token, because the drafter knows only some and a grammar forbids these, or if
        they contain NaN or +inf, as those of broken weights do, or if no grammar can be followed so
        far.
        confidence: of the drafter in the token; None: its `margin`.
        """
        sampler, row = self._limit.sampler, logits[: self._n_vocab]
        try:
            proposal = sampler.distribution(row, self._prefix)
        except LocalspecError:
            return False
        if self._limit.needs_probs:
            self._probs.append(proposal.kept())
        token = sampler.sample(proposal, self._prefix)
        if confidence is None and self._limit.go_on is not None:
            confidence = margin(row, proposal, token, sampler, self._prefix)
        return self.take(Drawn(token, confidence, proposal.state_after(token)))

    def take(self, drawn: Drawn) -> bool:
        """Add a token that was drawn; returns whether to draw another one."""
        go_on, prefix = self._limit.go_on, self._prefix
        token, confidence, state = drawn
        self.tokens.append(token)
        self._states.append(state)
        self._prefix = prefix.then(token, state)
        if go_on is not None and confidence is not None:
            self.confidences.append(confidence)
            if not go_on(confidence):
                return False
        return len(self.tokens) < self._depth
