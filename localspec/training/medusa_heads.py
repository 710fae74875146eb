"""Medusa heads in torch: each drafts a token further on from the last row of the target.

Cai et al. 2024, https://arxiv.org/abs/2401.10774. The row of the token x_p, behind the output norm,
gives the pending token x_{p+1}; head k = 1, 2, ... predicts x_{p+1+k} from the same row.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from localspec.training.layers import Exported
from localspec.training.tensor_layouts import MEDUSA_BLOCKS, MEDUSA_HEADS

# How much less each further token counts, and at how many places of a batch each head is trained:
# their logits cost more than all of the target.
DECAY, SHARE = 0.8, 0.2


class MedusaHeads(Exported):
    """A few residual blocks for each head, and the target's own output matrix for all of them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(
            nn.ModuleList(nn.Linear(width, width) for _ in range(MEDUSA_BLOCKS))
            for _ in range(MEDUSA_HEADS)
        )
        for name, weight in self.named_parameters():
            # An untrained head repeats what the target says of the pending token.
            (nn.init.zeros_ if name.endswith("bias") else _small)(weight)

    def forward(self, rows: Tensor, head: int) -> Tensor:
        """What the output matrix takes of a head, (..., width), of rows of the target."""
        for block in self.heads[head]:
            rows = rows + F.silu(block(rows))
        return rows


def _small(weight: Tensor) -> None:
    nn.init.normal_(weight, 0, 1e-3)
