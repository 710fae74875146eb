"""Medusa for `localspec train`: heads that draft from the last row of their target."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from localspec.conversion.published import file_type, require_type
from localspec.conversion.target import TargetFile
from localspec.gguf.matrix_heads import TYPES, matrix_head_of
from localspec.gguf.writer import TensorType
from localspec.loading.matrix_heads import require_target
from localspec.models.kinds import MEDUSA
from localspec.speculation.passes import OUTPUT
from localspec.training.acceptance_loss import Agreement, acceptance_loss, agreement
from localspec.training.drafter_kind import Kind, KindOptions, TrainableDrafter
from localspec.training.examples import Batch
from localspec.training.head_export import write_medusa
from localspec.training.head_import import HeadFile, medusa_weights
from localspec.training.head_source import HeadSource, places_behind
from localspec.training.medusa_heads import DECAY, SHARE, MedusaHeads
from localspec.training.tensor_layouts import MEDUSA_BLOCKS, MEDUSA_HEADS
from localspec.training.training_size import TrainingSize, weights_of

# Rows that each block keeps of a token for the gradients.
_COPIES = 3


class MedusaDrafter(TrainableDrafter):
    """Heads with their target's output matrix. type_: of the matrices in their file."""

    def __init__(self, source: HeadSource, type_: TensorType) -> None:
        super().__init__()
        self.heads, self.output = MedusaHeads(source.sizes.width), source.output()
        self._source, self._type = source, type_

    def loss(self, batch: Batch) -> Tensor:
        """The loss of all heads at some of the places; each further token counts less."""
        total = torch.zeros((), device=batch.tokens.device)
        for head, places in self._places(batch):
            some = places & (torch.rand(places.shape) < SHARE).to(places.device)
            rows = self.heads(batch.hidden[OUTPUT][some], head)
            top = batch.top.later(head + 1).at(some)
            total = total + DECAY**head * acceptance_loss(rows, self.output.weight, top)
        return total / sum(DECAY**head for head in range(MEDUSA_HEADS))

    def agreement(self, batch: Batch) -> Sequence[Agreement]:
        """By head."""
        return [
            agreement(
                self.heads(batch.hidden[OUTPUT][places], head),
                self.output.weight,
                batch.top.later(head + 1).at(places),
            )
            for head, places in self._places(batch)
        ]

    @property
    def note(self) -> str:
        """How many heads there are."""
        return f"{MEDUSA_HEADS} heads"

    def export(self, path: Path, about: Mapping[str, object]) -> None:
        """Write the heads in localspec's own layout (docs/heads.md)."""
        said = {**about, "general.file_type": file_type(self._type)}
        write_medusa(self._source.sizes, self.heads.weights(), path, self._type, said)

    def _places(self, batch: Batch) -> Iterator[tuple[int, Tensor]]:
        """Each head, and the places whose rows it drafts from."""
        for head in range(MEDUSA_HEADS):
            # The row of a place gives the next token, and the first head the one after that.
            yield head, batch.wanted & places_behind(batch.wanted, head + 1)


def _layers(target: TargetFile, options: KindOptions) -> tuple[int, ...]:
    options.require_no_cut(MEDUSA)
    require_type(options.type_name, TYPES)
    HeadSource(target, MEDUSA)
    if options.head:
        file = HeadFile(options.head, MEDUSA)
        require_target(options.head, matrix_head_of(options.head, file.header), target.facts)
    return (OUTPUT,)


def _create(target: TargetFile, options: KindOptions, sample: Sequence[Batch]) -> MedusaDrafter:
    source = HeadSource(target, MEDUSA)
    source.require_rows(sample)
    drafter = MedusaDrafter(source, require_type(options.type_name, TYPES))
    if options.head:
        file = HeadFile(options.head, MEDUSA)
        file.load_into(drafter.heads, medusa_weights(file))
    return drafter


def _size(target: TargetFile, _options: KindOptions, _layers: Sequence[int]) -> TrainingSize:
    trained = weights_of(lambda: MedusaHeads(target.width))
    tables = target.n_vocab * target.width
    kept = (1 + SHARE * MEDUSA_HEADS * MEDUSA_BLOCKS * _COPIES) * target.width
    return TrainingSize(trained, tables, target.width, target.n_vocab, kept)


MEDUSA_KIND = Kind(MEDUSA, _layers, _create, _size)
