"""Medusa: several heads draft from the last row of their target, each a token further on.

Cai et al. 2024, https://arxiv.org/abs/2401.10774. From the row of the last evaluated token, which
gave the pending one, head k predicts the k-th token behind the pending one. No head knows what the
others drew. A chain of one token per head is drafted; the paper's tree of candidates is not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from localspec.drafters.chain import Chain
from localspec.drafters.output_row import Matrix, OutputRowDrafter, Vector


@dataclass(frozen=True, slots=True)
class MedusaHead:
    """One head. blocks: the matrix and the bias of each residual block."""

    blocks: Sequence[tuple[Matrix, Vector]]
    output: Matrix

    def logits(self, row: Vector) -> Vector:
        """The logits that this head gives a (width,) row of the target: (n_vocab,)."""
        for matrix, bias in self.blocks:
            row = row + _silu(matrix.times(row) + bias)
        return self.output.times(row)


class Medusa(OutputRowDrafter):
    """A drafter with Medusa heads, the first of which predicts the token after the pending one."""

    def __init__(self, heads: Sequence[MedusaHead], *, name: str, n_vocab: int) -> None:
        super().__init__(name=name, n_vocab=n_vocab, deepest=len(heads))
        self._heads = heads

    def draw(self, chain: Chain, row: Vector, pending: int) -> None:
        """Draw one token of each head."""
        for head in self._heads:
            if not chain.draw(head.logits(row)):
                return


def _silu(values: Vector) -> Vector:
    # exp overflows for large negative values, whose result is zero then, as it should be.
    with np.errstate(over="ignore"):
        result: Vector = values / (1 + np.exp(-values))
    return result
