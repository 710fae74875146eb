"""EAGLE-3 head in torch: one layer that drafts from three hidden rows of its target.

Li et al. 2025, https://arxiv.org/abs/2503.01840. The pair at position p is the token x_{p+1} with a
state of the target at p; it predicts x_{p+2}. In training the head goes on for a few tokens with
its own states, as it does when it drafts ("training-time test").
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from localspec.training.layers import Layer, Rotating, rotated, started
from localspec.training.sizes import EPSILON, Sizes

# Drafted tokens in training, and how much less each further one counts.
STEPS, DECAY = 4, 0.8


class Eagle3Head(Layer, Rotating):
    """A head for a target, with the target's own embedding and output matrix.

    sizes: of the head; its rows are as wide as the target's. reads: the target's layers whose input
    rows it reads.
    """

    def __init__(self, sizes: Sizes, reads: Sequence[int]) -> None:
        super().__init__(sizes)
        width = sizes.width
        self.reads = tuple(reads)
        self.fc = nn.Linear(len(reads) * width, width, bias=False)
        self.token_norm = nn.RMSNorm(width, EPSILON)
        self.state_norm = nn.RMSNorm(width, EPSILON)
        self.qkv = nn.Linear(2 * width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.add_feed_forward(sizes)
        self.norm = nn.RMSNorm(width, EPSILON)
        started(self, layers=1)

    def encode(self, states: Sequence[Tensor] | Mapping[int, Tensor]) -> Tensor:
        """The head's states, of the rows that enter each layer of the target."""
        return self.fc(torch.cat([states[layer] for layer in self.reads], -1)).float()

    def drafts(self, states: Tensor, embedded: Tensor, visible: Tensor) -> Iterator[Tensor]:
        """Yield the head's own states for each of STEPS drafted tokens, (texts, length, width).

        states: those of `encode`. embedded: the embeddings of the next tokens. visible: as in
        Batch. The row of a place predicts the token two places further on, behind a draft that
        began as many places before as tokens were drafted.
        """
        past = Past()
        for step in range(STEPS):
            states = self(embedded, states if step == 0 else later(states, 1), past, visible)
            yield states

    def forward(self, embedded: Tensor, states: Tensor, past: "Past", visible: Tensor) -> Tensor:
        """The head's own states, (texts, length, width), of a further drafted token at each place.

        embedded: the embeddings of the tokens of the pairs. past: the keys and values of the pairs
        before; those of these are added to it.
        """
        normed = self.state_norm(states)
        pairs = self.qkv(torch.cat([self.token_norm(embedded), normed], -1))
        batch, length, _ = states.shape
        shape = (batch, length, 3, self.sizes.heads, self.sizes.head)
        q, k, v = pairs.view(shape).unbind(2)
        cos, sin = self.cos[:length], self.sin[:length]
        past.add(rotated(k, cos, sin).transpose(1, 2), v.transpose(1, 2))
        mixed = past.attend(rotated(q, cos, sin).transpose(1, 2), visible)
        mixed = mixed.transpose(1, 2).reshape(batch, length, -1)
        return self.fed_forward(states + self.output(mixed))


class Past:
    """The keys and values of the pairs: those with the target's states, then drafted ones.

    The row of a place at drafted token j stands for a draft that began j places before: it sees the
    target's pairs up to there, and one pair of each drafted token since.
    """

    def __init__(self) -> None:
        self._pairs: list[tuple[Tensor, Tensor]] = []

    def add(self, keys: Tensor, values: Tensor) -> None:
        """Add the pairs of a further token, (texts, heads, length, size)."""
        self._pairs.append((keys, values))

    def attend(self, queries: Tensor, visible: Tensor) -> Tensor:
        """What each query reads. visible: as in Batch."""
        drafted = len(self._pairs) - 1
        keys, values = self._pairs[0]
        scale = queries.shape[-1] ** -0.5
        seen = visible.tril(-drafted) if drafted else visible
        scores = [(queries @ keys.transpose(-1, -2)).masked_fill(~seen, -torch.inf)]
        own = [
            (later(keys, drafted - step), later(values, drafted - step))
            for step, (keys, values) in enumerate(self._pairs[1:], 1)
        ]
        scores += [(queries * keys).sum(-1, keepdim=True) for keys, _ in own]
        shares = (torch.cat(scores, -1) * scale).softmax(-1)
        length = keys.shape[-2]
        mixed = shares[..., :length] @ values
        for place, (_, values) in enumerate(own, length):
            mixed = mixed + shares[..., place : place + 1] * values
        return mixed


def later(rows: Tensor, places: int) -> Tensor:
    """Rows, (..., length, size), each so many places later; zeros come first."""
    return F.pad(rows, (0, 0, places, 0))[..., : rows.shape[-2], :]
