"""MTP for `localspec train`: one more layer of the target, which drafts from its last rows."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from localspec.conversion.published import TYPES, file_type, require_type, tensor_of
from localspec.conversion.target import TargetFile
from localspec.gguf.heads import MTP
from localspec.gguf.writer import TensorType, write_gguf
from localspec.training.chained_drafts import ChainedDrafts
from localspec.training.drafter_kind import Kind, KindOptions
from localspec.training.eagle3_head import STEPS, later
from localspec.training.examples import Batch, TopRows
from localspec.training.head_source import places_before, require_rows_read
from localspec.training.mtp_head import MtpHead
from localspec.training.mtp_source import MtpSource
from localspec.training.training_size import LENGTH, TrainingSize, kept_by_layer


class MtpDrafter(ChainedDrafts):
    """A head with its target's matrices.

    head: the file that it begins with, as in MtpSource. type_: of the matrices in its file.
    """

    def __init__(self, source: MtpSource, head: Path | None, type_: TensorType) -> None:
        super().__init__()
        weights, self._origin = source.weights(head)
        self.head = MtpHead(source.shape, weights)
        self.embedding = source.embedding()
        self.output = self.embedding if source.is_tied else source.output()
        self._source, self._type = source, type_

    @property
    def note(self) -> str:
        """What it begins with."""
        return f"one layer, {self._origin}"

    def export(self, path: Path, about: Mapping[str, object]) -> None:
        """Write a file of its own, which llama.cpp loads beside the target."""
        layer, architecture = self._source.target.layers, self._source.target.header.architecture
        metadata = {
            **self._source.file_metadata(),
            "general.file_type": file_type(self._type),
            **about,
        }
        tensors = [*self._source.target_tensors()]
        for name, weight in self.head.state_dict().items():
            values = weight.float().cpu().numpy()
            tensors.append(tensor_of(f"blk.{layer}.{name}", values, self._type))
        write_gguf(path, architecture, metadata, tensors)

    def _drafts(self, batch: Batch) -> Iterator[tuple[Tensor, TopRows]]:
        """As ChainedDrafts says.

        The pair of a place has its token and the row before, and predicts the token behind it.
        """
        length = batch.tokens.shape[1]
        visible = torch.ones(length, length, dtype=torch.bool, device=batch.tokens.device).tril()
        (rows,) = batch.hidden.values()
        drafts = self.head.drafts(later(rows, 1), self.embedding(batch.tokens), visible)
        for step, own in enumerate(drafts):
            places = batch.wanted & places_before(batch.wanted, step)
            yield own[places], batch.top.at(places)


def _layers(target: TargetFile, options: KindOptions) -> tuple[int, ...]:
    """The rows that leave the target's last layer."""
    options.require_no_cut(MTP)
    require_type(options.type_name, TYPES)
    MtpSource(target).weights(options.head)  # refuses a head of another shape
    layers = (target.layers,)
    require_rows_read(target, MTP, layers)
    return layers


def _create(target: TargetFile, options: KindOptions, sample: Sequence[Batch]) -> MtpDrafter:
    source = MtpSource(target)
    source.require_rows(sample)
    return MtpDrafter(source, options.head, require_type(options.type_name, TYPES))


def _size(target: TargetFile, _options: KindOptions, _layers: Sequence[int]) -> TrainingSize:
    source = MtpSource(target)
    shape = source.shape
    # Queries have gates as wide as they are; the token and the row before are joined.
    attention = (3 * shape.heads + 2 * shape.kv_heads) * shape.head
    trained = shape.width * (attention + 3 * shape.feed_forward + 2 * shape.width)
    layer = kept_by_layer(shape.width, shape.feed_forward, copies=26, heads=shape.heads)
    kept = 4 * shape.width + STEPS * layer + 3 * shape.heads * LENGTH
    return source.size(trained, kept, STEPS)


MTP_KIND = Kind(MTP, _layers, _create, _size)
