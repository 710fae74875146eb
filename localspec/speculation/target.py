"""Target: what the loop needs of the model that decides."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.speculation.draft import Draft


@dataclass(frozen=True, slots=True)
class Scores:
    """What one pass gave.

    logits: (1 + len(draft), n_vocab) float32 view, valid until the next pass: row 0 follows the
        pending token, row i + 1 follows draft node i.
    padding: how many rows more were in the pass.
    again: how many tokens the pass evaluated before them once more, after a rollback; no row of
        theirs is in `logits` or counted in `width`.
    """

    logits: NDArray[np.float32]
    padding: int = 0
    again: int = 0

    @property
    def width(self) -> int:
        """The rows of the pass, padding included."""
        return len(self.logits) + self.padding


class Target(Protocol):
    """A model whose cache holds the committed text up to, not including, the pending token."""

    @property
    def n_vocab(self) -> int: ...

    def score(self, pending: int, draft: Draft) -> Scores:
        """One pass over the pending token and the draft."""
        ...

    def commit(self, path: Sequence[int]) -> None:
        """Keep the pending token and these draft nodes in the cache; roll the rest back."""
        ...
