"""Acceptance loss: how far a drafter is from its target, where that costs drafted tokens.

A drafted token is accepted with probability sum min(p, q) = 1 - TV(p, q) at best, and with the rule
`coupled` nearly as often. The total variation itself has no gradient where the drafter is far off;
the Kullback-Leibler divergence has one, and spends it on what is accepted anyway. So their mix: at
first the divergence, then the variation, by exp(-3 acceptance).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from localspec.training.examples import TopRows

# Logits that are computed at once; those of more rows are computed twice instead of being kept.
LOGITS = 1 << 25


@dataclass(frozen=True, slots=True)
class Agreement:
    """The sum of min(p, q) over some rows, and the number of rows."""

    total: float
    rows: int

    @property
    def rate(self) -> float:
        """The mean: the share of drafted tokens that would be accepted."""
        return self.total / max(1, self.rows)

    def __add__(self, other: "Agreement") -> "Agreement":
        return Agreement(self.total + other.total, self.rows + other.rows)


NONE = Agreement(0.0, 0)


def acceptance_loss(rows: Tensor, table: Tensor, top: TopRows) -> Tensor:
    """The mean loss of rows from which the output matrix makes logits; 0 without any row.

    rows: (n, width). table: (vocabulary, width). top: (n, ...), what the target says there.
    """
    if not len(rows):
        return rows.sum() * 0
    parts = max(1, -(-len(rows) * len(table) // LOGITS))
    total = torch.zeros((), device=rows.device)
    for places in torch.arange(len(rows), device=rows.device).chunk(parts):
        own = TopRows(top.ids[places], top.log_probs[places], top.rest[places])
        if parts == 1:
            total = total + _sum(rows[places], table, *_fields(own))
        else:
            total = total + checkpoint(
                _sum, rows[places], table, *_fields(own), use_reentrant=False
            )
    return total / len(rows)


def agreement(rows: Tensor, table: Tensor, top: TopRows) -> Agreement:
    """How far rows agree with the target. The arguments: as in `acceptance_loss`."""
    total, step = 0.0, max(1, LOGITS // len(table))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        own = TopRows(top.ids[part], top.log_probs[part], top.rest[part])
        with torch.no_grad():
            total += _accepted(_log_probs(rows[part], table, own.ids), own).sum().item()
    return Agreement(total, len(rows))


def _fields(top: TopRows) -> tuple[Tensor, Tensor, Tensor]:
    return top.ids, top.log_probs, top.rest


def _log_probs(rows: Tensor, table: Tensor, ids: Tensor) -> Tensor:
    """The drafter's log-probabilities of the target's likeliest tokens."""
    logits = F.linear(rows, table).float()
    return logits.gather(1, ids) - logits.logsumexp(1, keepdim=True)


def _accepted(own: Tensor, top: TopRows) -> Tensor:
    """The mass that both give to the target's likeliest tokens, (n,)."""
    return torch.minimum(own, top.log_probs).exp().sum(1)


def _sum(rows: Tensor, table: Tensor, ids: Tensor, log_probs: Tensor, rest: Tensor) -> Tensor:
    top = TopRows(ids, log_probs, rest)
    own = _log_probs(rows, table, ids)
    right = log_probs.exp()
    divergence = (right * (log_probs - own)).sum(1)
    # All other tokens count as one.
    others = (1 - own.exp().sum(1)).clamp_min(1e-9).log()
    divergence = divergence + rest.exp() * (rest - others)
    accepted = _accepted(own, top)
    share = torch.exp(-3 * accepted.detach())
    return (share * divergence + (1 - share) * (1 - accepted)).sum()
