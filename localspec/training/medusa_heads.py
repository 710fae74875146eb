"""Medusa heads in torch: each drafts a token further on from the last row of the target.

Cai et al. 2024, https://arxiv.org/abs/2401.10774. The row of the token x_p, behind the output norm,
gives the pending token x_{p+1}; head k = 1, 2, ... predicts x_{p+1+k} from the same row.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from localspec.training.batches import Batch
from localspec.training.head_export import MEDUSA_BLOCKS, MEDUSA_HEADS
from localspec.training.trainer import Loss, divergence
from localspec.training.transformer import Exported, Transformer

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


def medusa_loss(heads: MedusaHeads, target: Transformer) -> Loss:
    """The mean divergence of the heads from the target, of the tokens that an assistant writes."""
    table = target.embedding.weight.detach()
    target.hidden = torch.compile(target.hidden)  # type: ignore[method-assign]

    def loss(batch: Batch) -> Tensor:
        with torch.no_grad():
            rows = target.hidden(batch.tokens, batch.visible)
        total = torch.zeros(())
        wanted = batch.wanted
        for head in range(MEDUSA_HEADS):
            # Answers are written without a gap, so what is wanted that far on is of the same one.
            wanted = wanted & F.pad(batch.wanted[:, head + 1 :], (0, head + 1))
            some = wanted & (torch.rand(wanted.shape) < SHARE)
            right = rows.roll(-head - 1, 1)[some]
            total = total + DECAY**head * divergence(
                F.linear(heads(rows[some], head), table).float(), F.linear(right, table).float()
            )
        return total

    return loss
