"""DFlash for `localspec train`: two layers that draft a block of tokens in one pass."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from localspec.conversion.target import TargetFile
from localspec.gguf.block_heads import DFLASH
from localspec.gguf.writer import TensorType
from localspec.training.acceptance_loss import Agreement, acceptance_loss, agreement
from localspec.training.dflash_block import DECAY, DFlashBlock
from localspec.training.examples import Batch, TopRows
from localspec.training.head_export import write_weights
from localspec.training.head_import import dflash_weights
from localspec.training.head_source import HeadSource
from localspec.training.row_head_kind import RowHead, row_head_kind
from localspec.training.tensor_layouts import (
    BLOCK,
    DFLASH_LAYERS,
    DFLASH_LAYOUT,
    file_tensors,
)
from localspec.training.training_size import LENGTH, TrainingSize, kept_by_layer, weights_of

# Tokens of a batch for which one block begins: blocks overlap a little less than they would at
# every place that a draft may begin at, and take as much time as the text itself.
_TOKENS = 8
_MASK = "tokenizer.ggml.mask_token_id"
# Tokens whose embedding can stand for a token that is not known yet, as no text has them inside.
_STAND_INS = (_MASK, "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id")


class DFlashDrafter(RowHead[DFlashBlock]):
    """A block with its target's matrices. reads: the layers. type_: of the matrices in its file."""

    def __init__(self, source: HeadSource, reads: Sequence[int], type_: TensorType) -> None:
        super().__init__(source, DFlashBlock(source.sizes, reads), type_)
        self._mask = _mask_of(source.target)

    def loss(self, batch: Batch) -> Tensor:
        """The loss of blocks that begin anywhere; each further token of a block counts less."""
        total, weight = torch.zeros((), device=batch.tokens.device), 0.0
        for place, (rows, top) in enumerate(self._drafts(batch, _anywhere(batch.wanted))):
            share = DECAY**place * len(rows)
            total = total + share * acceptance_loss(rows, self.output.weight, top)
            weight += share
        return total / max(weight, 1.0)

    def agreement(self, batch: Batch) -> Sequence[Agreement]:
        """By place in a block; its rows do not know the tokens drafted before them."""
        drafts = self._drafts(batch, _evenly(batch.wanted))
        return [agreement(rows, self.output.weight, top) for rows, top in drafts]

    @property
    def note(self) -> str:
        """Which layers it reads."""
        reads = ", ".join(map(str, self.head.reads))
        return f"blocks of {BLOCK} tokens, reads the rows that enter layers {reads}"

    def export(self, path: Path, about: Mapping[str, object]) -> None:
        """Write a drafter that llama.cpp loads, too; the matrices of the target stay there."""
        metadata = {
            **self._source.metadata(DFLASH, DFLASH_LAYERS),
            f"{DFLASH}.target_layers": list(self.head.reads),
            f"{DFLASH}.block_size": BLOCK,
            f"{DFLASH}.attention.causal": False,
            _MASK: self._mask,
            **about,
        }
        tensors = file_tensors(DFLASH_LAYOUT, self.head.weights())
        write_weights(path, DFLASH, metadata, tensors, self._type)

    def _drafts(self, batch: Batch, starts: Tensor) -> Iterator[tuple[Tensor, TopRows]]:
        """For each place behind the first of a block, its rows and what the target says there.

        starts: where blocks begin, (texts, blocks): at their pending tokens.
        """
        texts = torch.arange(len(starts), device=starts.device)[:, None]
        tokens = torch.full((*starts.shape, BLOCK), self._mask, device=starts.device)
        tokens[..., 0] = batch.tokens[texts, starts]
        length = batch.tokens.shape[1]
        # The target's rows at the pending token are not there yet.
        seen = torch.arange(length, device=starts.device) < starts[..., None]
        rows = self.head(self.embedding(tokens), batch.hidden, starts, seen)
        known = torch.ones_like(starts, dtype=torch.bool)
        for place in range(1, BLOCK):
            # What the target says one place before a row is what the row should say.
            before = starts + place - 1
            inside = before.clamp_max(length - 1)
            known = known & (before < length) & batch.wanted[texts, inside]
            top = batch.top.at((texts, inside))
            yield rows[:, :, place][known], top.at(known)


def _anywhere(wanted: Tensor) -> Tensor:
    """Random places, one for every _TOKENS, mostly such as a draft begins at."""
    # Somewhere to begin in a text without any.
    likely = wanted.float() + 1e-6
    return torch.multinomial(likely, _count(wanted), replacement=True)


def _evenly(wanted: Tensor) -> Tensor:
    """Places at equal distances, the same for all texts."""
    length, count = wanted.shape[1], _count(wanted)
    starts = torch.arange(count, device=wanted.device) * length // count
    return starts.expand(len(wanted), -1)


def _count(wanted: Tensor) -> int:
    return max(1, wanted.shape[1] // _TOKENS)


def _mask_of(target: TargetFile) -> int:
    found = (target.header.metadata.get(key) for key in _STAND_INS)
    return next((each for each in found if isinstance(each, int) and each < target.n_vocab), 0)


def _size(source: HeadSource, reads: Sequence[int]) -> TrainingSize:
    # There is about a row of a block for each token.
    each, sizes = BLOCK / _TOKENS, source.sizes
    layer = kept_by_layer(sizes.width, sizes.feed_forward, copies=25, heads=2 * sizes.heads)
    rows = 2 * len(reads) * sizes.width
    kept = rows + each * (DFLASH_LAYERS * layer + 3 * sizes.heads * LENGTH)
    return source.size(weights_of(lambda: DFlashBlock(sizes, reads)), kept, 1)


DFLASH_KIND = row_head_kind(DFLASH, DFlashDrafter, dflash_weights, _size)
