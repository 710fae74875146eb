"""DFlash in torch: a few layers that draft a whole block of tokens at once.

Chen et al. 2026 (block diffusion for flash speculative decoding). The rows of a block are the
pending token and mask tokens; each row predicts the token at its own place. They see each other,
and the target's hidden rows of all tokens before the block.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from localspec.training.layers import Layer, Rotating, rotated, started
from localspec.training.sizes import EPSILON, Sizes
from localspec.training.tensor_layouts import BLOCK, DFLASH_LAYERS

# How much less each further token of a block counts.
DECAY = 0.85


class DFlashLayer(Layer):
    """Attention over the text's hidden rows and over the block, and feed-forward."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, self.sizes = sizes.width, sizes
        self.attention_norm = nn.RMSNorm(width, EPSILON)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.query_norm = nn.RMSNorm(sizes.head, EPSILON)
        self.key_norm = nn.RMSNorm(sizes.head, EPSILON)
        self.output = nn.Linear(width, width, bias=False)
        self.add_feed_forward(sizes)

    def forward(
        self, rows: Tensor, text: Tensor, turns: "RotaryTable", places: Tensor, seen: Tensor
    ) -> Tensor:
        """rows: (texts, blocks, BLOCK, width). text: (texts, length, width). places: of the rows.

        seen: bool, (texts, blocks, length), which rows of the text each block sees.
        """
        texts, blocks, block, width = rows.shape
        heads, size = self.sizes.heads, self.sizes.head
        q, k, v = (
            each.view(texts, blocks, block, heads, size)
            for each in self.qkv(self.attention_norm(rows)).chunk(3, -1)
        )
        q = turns.at(self.query_norm(q.float()), places)
        k = turns.at(self.key_norm(k.float()), places)
        text_k, text_v = (
            each.view(texts, -1, heads, size)
            for each in F.linear(text, self.qkv.weight[width:]).chunk(2, -1)
        )
        every = torch.arange(text.shape[1], device=text.device)[None]
        text_k = turns.at(self.key_norm(text_k.float()), every)
        before = torch.einsum("tbihd,tlhd->tbhil", q, text_k)
        before = before.masked_fill(~seen[:, :, None, None], -torch.inf)
        inside = torch.einsum("tbihd,tbjhd->tbhij", q, k)
        shares = (torch.cat([before, inside], -1) * size**-0.5).softmax(-1)
        mixed = torch.einsum("tbhil,tlhd->tbihd", shares[..., :-block], text_v)
        mixed = mixed + torch.einsum("tbhij,tbjhd->tbihd", shares[..., -block:], v)
        return self.fed_forward(rows + self.output(mixed.reshape(rows.shape)))


class RotaryTable:
    """RoPE at any places. cos, sin: those of a Transformer."""

    def __init__(self, cos: Tensor, sin: Tensor) -> None:
        self._cos, self._sin = cos, sin

    def at(self, heads: Tensor, places: Tensor) -> Tensor:
        """Turn (..., places, heads, size)."""
        return rotated(heads, self._cos[places], self._sin[places])


class DFlashBlock(Rotating):
    """A drafter of blocks for a target, with the target's own embedding and output matrix.

    sizes: of the drafter; its rows are as wide as the target's. reads: the target's layers whose
    input rows it reads.
    """

    def __init__(self, sizes: Sizes, reads: Sequence[int]) -> None:
        super().__init__(sizes)
        self.reads, width = tuple(reads), sizes.width
        self.fc = nn.Linear(len(reads) * width, width, bias=False)
        self.text_norm = nn.RMSNorm(width, EPSILON)
        self.layers = nn.ModuleList(DFlashLayer(sizes) for _ in range(DFLASH_LAYERS))
        self.norm = nn.RMSNorm(width, EPSILON)
        started(self, DFLASH_LAYERS)

    def forward(
        self,
        rows: Tensor,
        states: Sequence[Tensor] | Mapping[int, Tensor],
        starts: Tensor,
        seen: Tensor,
    ) -> Tensor:
        """The rows behind the last norm, (texts, blocks, BLOCK, width).

        rows: embeddings of the blocks' tokens. states: the rows that enter each layer of the
        target. starts: the place of each block, (texts, blocks). seen: as in DFlashLayer.
        """
        fused = self.fc(torch.cat([states[layer] for layer in self.reads], -1))
        text = self.text_norm(fused.float())
        places = starts[..., None] + torch.arange(BLOCK, device=starts.device)
        turns = RotaryTable(self.cos, self.sin)
        for layer in self.layers:
            rows = layer(rows, text, turns, places, seen)
        return self.norm(rows)
