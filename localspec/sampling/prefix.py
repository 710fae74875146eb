"""Prefix: the part of the text before a token that its sampling depends on."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Constraint(Protocol):
    """Which tokens may come next, such as a grammar's state. Immutable: `then` gives the next."""

    def allowed(self) -> NDArray[np.bool_]:
        """(n_vocab,) whether each token may come next."""
        ...

    def then(self, token: int) -> "Constraint":
        """The constraint after one more token."""
        ...


@dataclass(frozen=True, slots=True)
class Prefix:
    """The text before a token. It is immutable, so that drafted tokens do not change it.

    position: the number of tokens in the text. window: the number of tokens that penalties read;
    -1 for all, 0 for none. recent: those tokens. constraint: which tokens may come next; None
    allows all. state: what the probabilities of the answer's tokens have made of mirostat's or
    adaptive-p's state; None where neither is on.
    """

    position: int
    window: int = 0
    recent: tuple[int, ...] = ()
    constraint: Constraint | None = None
    state: float | None = None

    def then(self, token: int, state: float | None = None) -> "Prefix":
        """The prefix after one more token.

        state: that of the distribution that it was drawn from (`Distribution.state_after`); None:
        as before the token.
        """
        recent = (*self.recent, token) if self.window else ()
        return Prefix(
            self.position + 1,
            self.window,
            recent[-self.window :] if self.window > 0 else recent,
            self.constraint.then(token) if self.constraint else None,
            self.state if state is None else state,
        )
