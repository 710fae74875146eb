"""Target: the interface of the model that decides every token."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.speculation.draft import Draft


@dataclass(frozen=True, slots=True)
class Scores:
    """The result of one target pass.

    logits: (1 + len(draft), n_vocab) float32 view, valid until the next pass: row 0 follows the
        pending token, row i + 1 follows draft node i.
    padding: the number of padding rows in the pass.
    again: how many committed tokens the pass evaluated once more, after a rollback. Their rows are
        not in `logits` and not counted in `width`.
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
        """Evaluate the pending token and the draft in one pass."""
        ...

    def commit(self, path: Sequence[int]) -> None:
        """Keep the pending token and the nodes of `path` in the cache; roll back all others."""
        ...
