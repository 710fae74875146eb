"""Layers in torch: what the heads trained here, and the bundled models, are made of."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from localspec.training.sizes import CONTEXT, EPSILON, Floats, Sizes


class Exported(nn.Module):
    """A module whose weights are written into a GGUF."""

    def weights(self) -> dict[str, Floats]:
        """Every weight by its name, as an array."""
        return {name: weight.float().cpu().numpy() for name, weight in self.state_dict().items()}


class Layer(Exported):
    """A layer that ends with a gated feed-forward behind its norm (Touvron et al., 2023)."""

    def add_feed_forward(self, sizes: Sizes) -> None:
        """Make its weights; a subclass calls this behind its attention's."""
        self.feed_norm = nn.RMSNorm(sizes.width, EPSILON)
        self.gate_up = nn.Linear(sizes.width, 2 * sizes.feed_forward, bias=False)
        self.down = nn.Linear(sizes.feed_forward, sizes.width, bias=False)

    def fed_forward(self, rows: Tensor) -> Tensor:
        """The rows that leave the layer."""
        gate, up = self.gate_up(self.feed_norm(rows)).chunk(2, -1)
        return rows + self.down(F.silu(gate) * up)


def rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE on (batch, length, heads, size); the two halves of a head turn together."""
    first, second = heads.chunk(2, -1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


def started(model: nn.Module, layers: int) -> None:
    """Give a model of so many layers its first weights."""
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            last = name.endswith(("output.weight", "down.weight"))
            nn.init.normal_(weight, 0, 0.02 / (math.sqrt(2 * layers) if last else 1))


class Rotating(Exported):
    """A model whose queries and keys turn by their position (Su et al. 2021, RoPE).

    cos, sin: (CONTEXT, 1, half of a head).
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        turns = sizes.rope_base ** -(torch.arange(0, sizes.head, 2) / sizes.head)
        angles = torch.outer(torch.arange(CONTEXT).float(), turns)[:, None]
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
