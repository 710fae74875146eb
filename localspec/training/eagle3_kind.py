"""EAGLE-3 for `localspec train`: one layer that reads three hidden rows of its target."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from localspec.gguf.heads import EAGLE3
from localspec.gguf.writer import TensorType
from localspec.training.chained_drafts import ChainedDrafts
from localspec.training.eagle3_head import STEPS, Eagle3Head
from localspec.training.examples import Batch, TopRows
from localspec.training.head_export import write_weights
from localspec.training.head_import import eagle3_weights
from localspec.training.head_source import HeadSource, places_before, places_behind
from localspec.training.row_head_kind import RowHead, row_head_kind
from localspec.training.tensor_layouts import EAGLE3_LAYOUT, file_tensors
from localspec.training.training_size import LENGTH, TrainingSize, kept_by_layer, weights_of


class Eagle3Drafter(ChainedDrafts, RowHead[Eagle3Head]):
    """A head with its target's matrices. reads: the layers. type_: of the matrices in its file."""

    def __init__(self, source: HeadSource, reads: Sequence[int], type_: TensorType) -> None:
        super().__init__(source, Eagle3Head(source.sizes, reads), type_)

    @property
    def note(self) -> str:
        """Which layers it reads."""
        return f"reads the rows that enter layers {', '.join(map(str, self.head.reads))}"

    def export(self, path: Path, about: Mapping[str, object]) -> None:
        """Write a head that llama.cpp loads, too; the matrices of the target stay there."""
        sizes = self._source.sizes
        metadata = {
            **self._source.metadata(EAGLE3, layers=1),
            f"{EAGLE3}.target_layers": list(self.head.reads),
            f"{EAGLE3}.target_hidden_size": sizes.width,
            **about,
        }
        tensors = file_tensors(EAGLE3_LAYOUT, self.head.weights(), sizes.heads)
        write_weights(path, EAGLE3, metadata, tensors, self._type)

    def _drafts(self, batch: Batch) -> Iterator[tuple[Tensor, TopRows]]:
        """As ChainedDrafts says.

        The pair of a place has its row and the next token, and predicts the one after that.
        """
        length = batch.tokens.shape[1]
        visible = torch.ones(length, length, dtype=torch.bool, device=batch.tokens.device).tril()
        embedded = self.embedding(batch.tokens.roll(-1, 1))
        right, wanted = batch.top.later(1), places_behind(batch.wanted, 1)
        states = self.head.encode(batch.hidden)
        for step, own in enumerate(self.head.drafts(states, embedded, visible)):
            # A draft begins where the pending token is of an answer, or the last of its prompt.
            places = wanted & places_before(wanted, step)
            yield self.head.norm(own[places]), right.at(places)


def _size(source: HeadSource, reads: Sequence[int]) -> TrainingSize:
    sizes = source.sizes
    layer = kept_by_layer(sizes.width, sizes.feed_forward, copies=19, heads=sizes.heads)
    rows = 2 * len(reads) * sizes.width  # as they were read, and side by side
    # Shares of attention are there a few times while a step is computed, and stay once.
    kept = rows + STEPS * layer + 3 * sizes.heads * LENGTH
    return source.size(weights_of(lambda: Eagle3Head(sizes, reads)), kept, STEPS)


EAGLE3_KIND = row_head_kind(EAGLE3, Eagle3Drafter, eagle3_weights, _size)
