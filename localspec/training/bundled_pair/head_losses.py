"""Losses of heads that draft for the bundled target: how far they are from what it says."""

from collections.abc import Callable
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from localspec.training import dflash_block, eagle3_head, medusa_heads
from localspec.training.bundled_pair.batches import Batch
from localspec.training.bundled_pair.gguf_export import MASK_ID
from localspec.training.bundled_pair.trainer import Loss, divergence
from localspec.training.bundled_pair.transformer import Transformer
from localspec.training.dflash_block import DFlashBlock
from localspec.training.eagle3_head import Eagle3Head
from localspec.training.medusa_heads import SHARE, MedusaHeads
from localspec.training.tensor_layouts import BLOCK, MEDUSA_HEADS

Rows = TypeVar("Rows", Tensor, list[Tensor])
# Blocks of each row of a batch.
_BLOCKS = 32


def eagle3_loss(head: Eagle3Head, target: Transformer) -> Loss:
    """The divergence of the head's drafts from the target, over a few drafted tokens."""
    table = target.embedding.weight.detach()
    read = _reader(target.states)

    def loss(batch: Batch) -> Tensor:
        states = read(batch)
        # The pair at a place predicts what the target predicts at the next one.
        wanted = F.pad(batch.wanted[:, 1:], (0, 1))
        with torch.no_grad():
            right = F.linear(target.norm(states[-1]).roll(-1, 1)[wanted], table).float()
        embedded = F.embedding(batch.next_tokens, table)
        total = torch.zeros(())
        for step, own in enumerate(head.drafts(head.encode(states), embedded, batch.visible)):
            logits = F.linear(head.norm(own)[wanted], table).float()
            total = total + eagle3_head.DECAY**step * divergence(logits, right)
        return total

    return loss


def dflash_loss(block: DFlashBlock, target: Transformer) -> Loss:
    """The divergence from the target of the tokens that an assistant writes, of blocks anywhere."""
    table = target.embedding.weight.detach()
    read = _reader(target.states)

    def loss(batch: Batch) -> Tensor:
        states = read(batch)
        starts = _starts(batch.wanted)
        texts = torch.arange(len(starts))[:, None]
        seen = batch.visible[:, 0][texts, starts] & (
            torch.arange(batch.tokens.shape[1]) < starts[..., None]
        )
        tokens = torch.full((*starts.shape, BLOCK), MASK_ID)
        tokens[..., 0] = batch.tokens[texts, starts]
        rows = block(F.embedding(tokens, table), states, starts, seen)[:, :, 1:]
        # Row i of a block predicts what the target predicts one place before.
        before = starts[..., None] + torch.arange(BLOCK - 1)
        counted = batch.wanted[texts[..., None], before].cumprod(-1).bool()
        total, weight = torch.zeros(()), 0.0
        right = target.norm(states[-1]).detach()
        for place in range(BLOCK - 1):
            chosen = counted[..., place]
            expected = right[texts, before[..., place]][chosen]
            share = dflash_block.DECAY**place * len(expected)
            total = total + share * divergence(
                F.linear(rows[:, :, place][chosen], table).float(),
                F.linear(expected, table).float(),
            )
            weight += share
        return total / max(weight, 1.0)

    return loss


def medusa_loss(heads: MedusaHeads, target: Transformer) -> Loss:
    """The mean divergence of the heads from the target, of the tokens that an assistant writes."""
    table = target.embedding.weight.detach()
    read = _reader(target.hidden)

    def loss(batch: Batch) -> Tensor:
        rows = read(batch)
        total = torch.zeros(())
        wanted = batch.wanted
        for head in range(MEDUSA_HEADS):
            # Answers are written without a gap, so what is wanted that far on is of the same one.
            wanted = wanted & F.pad(batch.wanted[:, head + 1 :], (0, head + 1))
            some = wanted & (torch.rand(wanted.shape) < SHARE)
            right = rows.roll(-head - 1, 1)[some]
            total = total + medusa_heads.DECAY**head * divergence(
                F.linear(heads(rows[some], head), table).float(), F.linear(right, table).float()
            )
        return total

    return loss


def _reader(read: Callable[[Tensor, Tensor], Rows]) -> Callable[[Batch], Rows]:
    """What the target computes of a batch, compiled and without gradients. read: its method."""
    compiled = torch.compile(read)

    def rows(batch: Batch) -> Rows:
        with torch.no_grad():
            return compiled(batch.tokens, batch.visible)

    return rows


def _starts(wanted: Tensor) -> Tensor:
    """Places in each text where a block may begin, (texts, _BLOCKS): its next token is wanted."""
    likely = wanted.float()
    likely[:, 1 - BLOCK :] = 0  # a whole block fits behind it
    likely[:, 1] += 1e-6  # somewhere to begin in a text without any
    return torch.multinomial(likely, _BLOCKS, replacement=True)
