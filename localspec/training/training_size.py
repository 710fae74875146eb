"""Training size: the memory that a training takes, known from shapes before a weight is read."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod

import torch
from torch import nn

from localspec.gguf.reader import TensorInfo
from localspec.training.acceptance_loss import LOGITS
from localspec.training.examples import batch_tokens
from localspec.utils.format import format_bytes

# Bytes of a trained weight: itself, its gradient, and what the optimizer remembers of it.
_TRAINED, _FROZEN, _FLOAT = 16, 4, 4
# Copies of logits: themselves, their logarithms, and the gradients of both.
_COPIES = 4
# What torch itself takes as soon as it computes.
_LIBRARIES = 128_000_000
# The length of texts that a batch is reckoned with.
LENGTH = 512


@dataclass(frozen=True, slots=True)
class TrainingSize:
    """trained, frozen: numbers of weights. width, vocabulary: of the target.

    kept: floats that each token of a batch leaves for the gradients, of texts of LENGTH tokens.
    losses: how many of each token there are at once.
    """

    trained: int
    frozen: int
    width: int
    vocabulary: int
    kept: float
    losses: int = 1

    @property
    def bytes(self) -> int:
        """All of it, about: the weights, and the largest batch."""
        tokens = max(LENGTH, batch_tokens(self.width))
        logits = tokens * self.vocabulary
        # Where they are many, a part of them is there at once, and computed anew when needed.
        logits = logits * self.losses if logits <= LOGITS else LOGITS
        weights = _TRAINED * self.trained + self.frozen_bytes
        return _LIBRARIES + weights + round(_FLOAT * (tokens * self.kept + _COPIES * logits))

    @property
    def in_words(self) -> str:
        """How much that is, in words, and what of it the frozen tables are."""
        tables = format_bytes(self.frozen_bytes)
        of_it = f" ({tables} of it for the target's token tables)" if self.frozen else ""
        return f"training takes about {format_bytes(self.bytes)}{of_it}"

    @property
    def frozen_bytes(self) -> int:
        """Those of weights that stay as they are: the tables of the target."""
        return _FROZEN * self.frozen


def kept_by_layer(width: int, feed_forward: int, *, copies: int, heads: int = 0) -> float:
    """The floats that a layer leaves of each token.

    copies: rows of the width. heads: those of attention whose shares of all places are kept.
    """
    return copies * width + 4 * feed_forward + heads * LENGTH


def weights_of(module: Callable[[], nn.Module]) -> int:
    """How many weights the module has that is made here, without memory for them."""
    with torch.device("meta"):
        return sum(weight.numel() for weight in module().parameters())


def weights_in(tensors: Iterable[TensorInfo]) -> int:
    """How many weights tensors of a file have."""
    return sum(prod(each.shape) for each in tensors)
