"""Optimizers: Muon for matrices (Jordan et al., 2024), AdamW for embeddings and vectors."""

from collections.abc import Sequence

import torch
from torch import nn


def optimizers(model: nn.Module, rate: float) -> list[torch.optim.Optimizer]:
    """The optimizers of all parameters that need a gradient. rate: the highest learning rate."""
    embeddings = {id(each.weight) for each in model.modules() if isinstance(each, nn.Embedding)}
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    tables = [weight for weight in trained if id(weight) in embeddings]
    matrices = [each for each in trained if each.dim() == 2 and id(each) not in embeddings]
    vectors = [weight for weight in trained if weight.dim() == 1]
    made: list[torch.optim.Optimizer] = []
    if matrices:
        made.append(
            torch.optim.Muon(matrices, lr=rate, weight_decay=0.02, adjust_lr_fn="match_rms_adamw")
        )
    groups = [
        {"params": tables, "weight_decay": 0.01},
        {"params": vectors, "weight_decay": 0.0},
    ]
    if groups := [each for each in groups if each["params"]]:
        made.append(torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95)))
    return made


def remembered(made: Sequence[torch.optim.Optimizer]) -> int:
    """How many numbers optimizers remember of all weights: Muon one of each, AdamW two."""
    return sum(
        weight.numel() * (1 if isinstance(each, torch.optim.Muon) else 2)
        for each in made
        for group in each.param_groups
        for weight in group["params"]
    )


def set_rate(made: Sequence[torch.optim.Optimizer], rate: float) -> None:
    """Go on with this learning rate."""
    for optimizer in made:
        for group in optimizer.param_groups:
            group["lr"] = rate
