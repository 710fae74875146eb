"""Prefix: the text before a token, as far as choosing that token looks at it."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Constraint(Protocol):
    """What may follow a text: a grammar, at one point of it. Never changed, only gone on from."""

    def allowed(self) -> NDArray[np.bool_]:
        """(n_vocab,) whether each token may come next."""
        ...

    def then(self, token: int) -> "Constraint":
        """The constraint after one more token."""
        ...


@dataclass(frozen=True, slots=True)
class Prefix:
    """A place in a text. Drafted tokens are gone on from without touching it.

    position: how many tokens come before. window: how many of them penalties look at, -1 for all;
    `recent` holds that many. constraint: what may come next, if something says so.
    """

    position: int
    window: int = 0
    recent: tuple[int, ...] = ()
    constraint: Constraint | None = None

    def then(self, token: int) -> "Prefix":
        """The place one token further on."""
        recent = (*self.recent, token) if self.window else ()
        return Prefix(
            self.position + 1,
            self.window,
            recent[-self.window :] if self.window > 0 else recent,
            self.constraint.then(token) if self.constraint else None,
        )
