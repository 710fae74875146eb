"""Draft model: some layers of the target itself, trained to say what all of them say.

The layers that are left know the target's vocabulary and its way of writing already, so a few
minutes bring back most of the agreement that the cut costs. Which layers are cut matters: the first
ones, ones at equal distances, and those that change their rows most (Men et al. 2024, ShortGPT) are
tried on a few texts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from localspec.conversion.published import file_type, require_type, tensor_of
from localspec.conversion.target import TargetFile
from localspec.errors import InvalidValueError
from localspec.gguf.writer import TensorData, TensorType, write_gguf
from localspec.models.kinds import DRAFT_MODEL
from localspec.training.acceptance_loss import NONE, Agreement, acceptance_loss, agreement
from localspec.training.cut_model import CutModel, read_layer, turns_of
from localspec.training.cut_shape import CutSource
from localspec.training.device import with_room
from localspec.training.drafter_kind import Kind, KindOptions, TrainableDrafter
from localspec.training.examples import Batch
from localspec.training.head_source import refusal
from localspec.training.training_size import TrainingSize, kept_by_layer, weights_in

TYPES = ("Q8_0", "Q4_0", "F16", "F32")
# One layer in so many is kept where the user does not say.
_SHARE = 3
# Larger tables are not trained: they are most of a small model, and know what they know.
_LARGEST_TABLES = 32_000_000
# Rows that each layer keeps of a token for the gradients.
_COPIES = 14


class DraftModel(TrainableDrafter):
    """A cut model. type_: of the matrices in its file."""

    def __init__(self, source: CutSource, kept: list[int], type_: TensorType) -> None:
        super().__init__()
        trains_tables = _tables(source) <= _LARGEST_TABLES
        self.model = CutModel(source, kept, trains_tables=trains_tables)
        self._source, self._type = source, type_

    def loss(self, batch: Batch) -> Tensor:
        """The loss at the places of answers."""
        rows = self.model(batch.tokens)[batch.wanted]
        return acceptance_loss(rows, self.model.table, batch.top.at(batch.wanted))

    def agreement(self, batch: Batch) -> Sequence[Agreement]:
        """One entry: a draft model sees its own tokens as it sees those of the text."""
        rows = self.model(batch.tokens)[batch.wanted]
        return [agreement(rows, self.model.table, batch.top.at(batch.wanted))]

    @property
    def kept(self) -> tuple[int, ...]:
        """The numbers of its layers in the target."""
        return tuple(self.model.kept)

    @property
    def note(self) -> str:
        """Which layers were kept."""
        return f"layers {', '.join(map(str, self.kept))} of {self._source.shape.layers}"

    def export(self, path: Path, about: Mapping[str, object]) -> None:
        """Write a model of the target's architecture, with its tokenizer."""
        target = self._source.target
        architecture = target.header.architecture
        metadata = {
            **target.model_metadata,
            "general.file_type": file_type(self._type),
            **about,
            f"{architecture}.block_count": len(self.model.kept),
        }
        write_gguf(path, architecture, metadata, list(self._tensors()))

    def _tensors(self) -> Iterator[TensorData]:
        trained = {name for name, weight in self.model.named_parameters() if weight.requires_grad}
        for name, weight in self.model.state_dict().items():
            if name in trained:
                values = weight.detach().float().cpu().numpy()
                yield tensor_of(name, values, self._type)
            else:
                yield self._source.stored(name)
        if self._source.has("rope_freqs.weight"):
            yield self._source.stored("rope_freqs.weight")


def _layers(target: TargetFile, options: KindOptions) -> tuple[int, ...]:
    """A draft model reads no rows; the target must be one whose layers can be cut out."""
    if options.head:
        raise InvalidValueError(
            f"head is {options.head}, and a draft model begins with its target's layers; leave it "
            "out, or name another kind"
        )
    _count(_source(target), options)
    require_type(options.type_name, TYPES)
    return ()


def _source(target: TargetFile) -> CutSource:
    return CutSource(target, partial(refusal, target, DRAFT_MODEL))


def _count(source: CutSource, options: KindOptions) -> int:
    layers = source.shape.layers
    if options.kept and not set(options.kept) <= set(range(layers)):
        raise InvalidValueError(
            f"kept is {options.kept}; the layers of {source.target.name} are 0 to {layers - 1}"
        )
    count = max(1, round(layers / _SHARE)) if options.layers is None else options.layers
    if not 1 <= count <= max(1, layers - 1):
        raise InvalidValueError(
            f"layers is {count}; {source.target.name} has {layers}, so name 1 to {layers - 1}"
        )
    return count


def _tables(source: CutSource) -> int:
    """How many weights the embedding and the output matrix have."""
    return source.shape.vocabulary * source.shape.width * (1 if source.is_tied else 2)


def _size(target: TargetFile, options: KindOptions, _layers: Sequence[int]) -> TrainingSize:
    source = _source(target)
    count = len(options.kept) or _count(source, options)
    tables, shape = _tables(source), source.shape
    layers = weights_in(each for each in target.facts.tensors if each.name.startswith("blk."))
    trained, frozen = (tables, 0) if tables <= _LARGEST_TABLES else (0, tables)
    kept = kept_by_layer(shape.width, shape.feed_forward, copies=_COPIES)
    trained += count * layers // shape.layers + shape.width
    return TrainingSize(trained, frozen, shape.width, shape.vocabulary, count * kept)


def _create(target: TargetFile, options: KindOptions, sample: Sequence[Batch]) -> DraftModel:
    source = _source(target)
    count, type_ = _count(source, options), require_type(options.type_name, TYPES)
    if options.kept:
        return DraftModel(source, [*options.kept], type_)
    ways: dict[str, Callable[[], list[int]]] = {
        "first": lambda: list(range(count)),
        "evenly": lambda: _evenly(source.shape.layers, count),
        "influence": lambda: _influential(source, count, sample),
    }
    if options.cut != "auto":
        return DraftModel(source, ways[options.cut](), type_)
    tried = {tuple(way()) for way in ways.values()}
    if len(tried) == 1:
        return DraftModel(source, list(tried.pop()), type_)
    rates = [(_untrained_rate(source, [*kept], type_, sample), kept) for kept in sorted(tried)]
    return DraftModel(source, [*max(rates)[1]], type_)


def _evenly(layers: int, count: int) -> list[int]:
    """Layers at equal distances, the first and the last among them."""
    if count == 1:
        return [0]
    return sorted({round(number * (layers - 1) / (count - 1)) for number in range(count)})


def _influential(source: CutSource, count: int, sample: Sequence[Batch]) -> list[int]:
    """The layers that turn their rows most, over a few texts; each is read by itself."""
    embedding = torch.from_numpy(source.floats("token_embd.weight").copy())
    turns = turns_of(source)
    rows = [embedding[each.tokens.cpu()] for each in sample]
    change = np.zeros(source.shape.layers)
    for number in range(source.shape.layers):
        layer = read_layer(source, number)
        with torch.no_grad():
            after = [layer(each, turns, turns.angles(each.shape[1])) for each in rows]
        likeness = [
            torch.cosine_similarity(old, new, -1)[each.wanted.cpu()].mean().item()
            for old, new, each in zip(rows, after, sample, strict=True)
        ]
        change[number], rows = 1 - np.mean(likeness), after
    return sorted(np.argsort(-change, kind="stable")[:count].tolist())


def _untrained_rate(
    source: CutSource, kept: list[int], type_: TensorType, sample: Sequence[Batch]
) -> float:
    model = DraftModel(source, kept, type_)
    device = with_room(model, sample[0].tokens.device)
    model.to(device).eval()
    with torch.no_grad():
        return sum((model.agreement(each.to(device))[0] for each in sample), NONE).rate


DRAFT_MODEL_KIND = Kind(DRAFT_MODEL, _layers, _create, _size)
