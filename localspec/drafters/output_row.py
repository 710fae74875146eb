"""Output row: what drafters share that draft from one row of their target, behind its output norm.

The row of the last evaluated token is what the target's output matrix makes the pending token of.
Such drafters have no cache: they keep this row alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.drafters.chain import Chain
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import Evaluated, Limit, Outcome, Traits
from localspec.speculation.passes import OUTPUT, Passes

Vector = NDArray[np.float32]


class Matrix(Protocol):
    """A (rows, columns) matrix."""

    def times(self, vector: Vector) -> Vector:
        """The product with a (columns,) vector: (rows,)."""
        ...


class OutputRowDrafter(ABC):
    """A HiddenReader without passes of its own.

    name: the origin of its tokens. n_vocab: the target's vocabulary size. deepest: the most tokens
    of a draft.

    The rows of a prompt are not handed out, so the first step behind a prompt has no draft.
    """

    def __init__(self, *, name: str, n_vocab: int, deepest: int) -> None:
        self.name = name
        self.traits = Traits(
            gives_probs=True,
            reads_hidden=(OUTPUT,),
            deepest=deepest,
            only_last_row=True,
            reads_media=True,
        )
        self._n_vocab = n_vocab
        self._text: list[int] = []
        # The row of the last of the first `_read` tokens of the text; None: it is not known.
        self._row: Vector | None = None
        self._read = 0

    @abstractmethod
    def draw(self, chain: Chain, row: Vector, pending: int) -> None:
        """Draw up to `deepest` tokens of a chain.

        row: of the last evaluated token. pending: the one after.
        """

    def held(self, tokens: Sequence[int]) -> int:
        """Return how many rows of a text need not be read again: all of them."""
        return len(tokens)

    def begin(self, tokens: Sequence[int]) -> None:
        """Start on this text; the row stays if it is that of the token before the pending one."""
        if self._read != len(tokens) - 1 or self._text[: self._read] != list(tokens[:-1]):
            self._row = None
        self._text = list(tokens)

    def read(self, evaluated: Evaluated) -> Passes[None]:
        """Keep the row of the last token; it needs no passes."""
        yield from ()
        rows = evaluated.hidden.get(OUTPUT)
        self._row = None if rows is None else rows[-1]
        self._read = evaluated.start + len(evaluated.tokens)

    def passes(self, limit: Limit) -> Passes[Draft]:
        """Draw up to `limit.depth` tokens, until `limit.go_on` returns False, without a pass."""
        yield from ()
        known = self._row is not None and self._read == len(self._text) - 1
        if limit.depth < 1 or not known or self._row is None or limit.cancelled():
            return NOTHING
        chain = Chain(limit, limit.depth, self._n_vocab)
        self.draw(chain, self._row, self._text[-1])
        return chain.draft if chain.tokens else NOTHING

    def observe(self, outcome: Outcome) -> None:
        """Append the committed tokens, whose row comes by `read`."""
        self._text += outcome.tokens
