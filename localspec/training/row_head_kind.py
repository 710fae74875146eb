"""Row head kind: a kind that drafts from rows which enter some of its target's layers."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from torch import nn

from localspec.conversion.published import TYPES, require_type
from localspec.conversion.target import TargetFile
from localspec.gguf.writer import TensorType
from localspec.training.drafter_kind import Kind, KindOptions, TrainableDrafter
from localspec.training.examples import Batch
from localspec.training.head_import import HeadFile
from localspec.training.head_source import HeadSource, read_layers
from localspec.training.sizes import Sizes, Weights
from localspec.training.training_size import TrainingSize

_Head = TypeVar("_Head", bound=nn.Module)


class RowHead(TrainableDrafter, Generic[_Head]):
    """A head with its target's matrices. type_: of the matrices in its file."""

    def __init__(self, source: HeadSource, head: _Head, type_: TensorType) -> None:
        super().__init__()
        self.head = head
        self.head.norm = source.output_norm()
        self.embedding = source.embedding()
        self.output = self.embedding if source.is_tied else source.output()
        self._source, self._type = source, type_


def row_head_kind(
    name: str,
    untrained: Callable[[HeadSource, Sequence[int], TensorType], RowHead[Any]],
    weights: Callable[[HeadFile, Sizes], Weights],
    size: Callable[[HeadSource, Sequence[int]], TrainingSize],
) -> Kind:
    """Make a kind of heads.

    untrained: makes one for a target, with the layers that it reads. weights: returns those of a
    file, by their names in the head. size: of a training, by the layers that the head reads.
    """

    def layers(target: TargetFile, options: KindOptions) -> tuple[int, ...]:
        options.require_no_cut(name)
        require_type(options.type_name, TYPES)
        HeadSource(target, name)
        return read_layers(target, name, options.head)

    def create(target: TargetFile, options: KindOptions, sample: Sequence[Batch]) -> RowHead[Any]:
        source = HeadSource(target, name)
        source.require_rows(sample)
        reads = read_layers(target, name, options.head)
        drafter = untrained(source, reads, require_type(options.type_name, TYPES))
        if options.head:
            file = HeadFile(options.head, name)
            file.load_into(drafter.head, weights(file, source.sizes))
        return drafter

    def size_for(target: TargetFile, _options: KindOptions, reads: Sequence[int]) -> TrainingSize:
        return size(HeadSource(target, name), reads)

    return Kind(name, layers, create, size_for)
