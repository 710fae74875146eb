"""Chained drafts: how a head learns that drafts token by token, going on with its own rows."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from localspec.training.acceptance_loss import Agreement, acceptance_loss, agreement
from localspec.training.drafter_kind import TrainableDrafter
from localspec.training.eagle3_head import DECAY, STEPS
from localspec.training.examples import Batch, TopRows


class ChainedDrafts(TrainableDrafter):
    """A head whose drafts, of STEPS tokens, are trained at once. output: the output matrix."""

    output: nn.Module

    @abstractmethod
    def _drafts(self, batch: Batch) -> Iterator[tuple[Tensor, TopRows]]:
        """For each drafted token, the rows behind the last norm, and what the target says there."""

    def loss(self, batch: Batch) -> Tensor:
        """The loss of all drafted tokens, of which each further one counts less."""
        losses = [
            DECAY**step * acceptance_loss(rows, self.output.weight, top)
            for step, (rows, top) in enumerate(self._drafts(batch))
        ]
        return torch.stack(losses).sum() / sum(DECAY**step for step in range(STEPS))

    def agreement(self, batch: Batch) -> Sequence[Agreement]:
        """By drafted token: the head goes on with its own rows, and the text's tokens."""
        drafts = self._drafts(batch)
        return [agreement(rows, self.output.weight, top) for rows, top in drafts]
