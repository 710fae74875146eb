"""Head source: what heads of a target have of it, its matrices above all."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from localspec.conversion.target import TargetFile
from localspec.errors import DrafterMismatchError, LocalspecError
from localspec.gguf.block_heads import DFLASH
from localspec.gguf.heads import EAGLE3, MTP, require_fitting
from localspec.gguf.reader import TensorInfo
from localspec.gguf.weights import Weights as FileWeights
from localspec.loading.head_check import unreadable_rows
from localspec.models.kinds import DRAFT_MODEL, MEDUSA
from localspec.training.cut_shape import CutSource
from localspec.training.examples import Batch
from localspec.training.head_import import HeadFile
from localspec.training.sizes import EPSILON, ROPE_BASE, Sizes
from localspec.training.training_size import TrainingSize

# Numbers of an attention head, at most.
_HEAD = 64
# Layers whose rows are read.
_FEWEST_LAYERS = 3
# Architectures whose heads of multi-token prediction are trained here: those of one dense layer.
MTP_ARCHITECTURES = ("qwen35",)


class HeadSource:
    """A target for which a head is trained. kind: of the head, for messages.

    sizes: of the head. Raises DrafterMismatchError for a target without matrices that the head
    could use.
    """

    def __init__(self, target: TargetFile, kind: str) -> None:
        self.target, self._kind = target, kind
        found = target.embedding, target.output
        if found[0] is None or found[1] is None:
            raise refusal(target, kind, "it has no embedding or output matrix of its width")
        self._embedding, self._output = found[0], found[1]
        width, base = target.width, target.header.own("rope.freq_base")
        self.sizes = Sizes(
            vocabulary=target.n_vocab,
            width=width,
            layers=1,
            heads=width // math.gcd(width, _HEAD),
            # Eleven quarters of the width, in whole blocks of quantised types.
            feed_forward=-(-width * 11 // 128) * 32,
            rope_base=float(base) if isinstance(base, int | float) else ROPE_BASE,
        )

    @property
    def is_tied(self) -> bool:
        """Whether the embedding is the output matrix too."""
        return self._embedding[1].name == self._output[1].name

    def size(self, trained: int, kept: float, losses: int) -> TrainingSize:
        """What training a head takes, beside the target's matrices. As in TrainingSize."""
        width, vocabulary = self.sizes.width, self.sizes.vocabulary
        tables = vocabulary * width * (1 if self.is_tied else 2)
        return TrainingSize(trained, tables, width, vocabulary, kept, losses)

    def embedding(self) -> nn.Embedding:
        """The target's embedding, which is not trained."""
        return self._table(*self._embedding)

    def output(self) -> nn.Embedding:
        """The target's output matrix, which is not trained."""
        return self._table(*self._output)

    def output_norm(self) -> nn.RMSNorm:
        """A norm that begins with the weights of the target's last one."""
        norm = nn.RMSNorm(self.sizes.width, EPSILON)
        found = self.target.located("output_norm.weight")
        if found and found[1].shape == (self.sizes.width,):
            with torch.no_grad():
                norm.weight.copy_(torch.from_numpy(found[0].rows(found[1]).copy()))
        return norm

    def require_rows(self, sample: Sequence[Batch]) -> None:
        """Raise DrafterMismatchError where the rows of these batches are none to learn from."""
        found = ((layer, rows) for batch in sample for layer, rows in batch.hidden.items())
        for layer, rows in found:
            if rows.shape[-1] != self.sizes.width or not rows.isfinite().all() or not rows.any():
                where = "behind its output norm" if layer < 0 else f"that enter layer {layer}"
                why = f"llama.cpp hands out no rows of it {where}"
                raise refusal(self.target, self._kind, why)

    def metadata(self, architecture: str, layers: int) -> dict[str, object]:
        """The metadata of a head of so many layers, with the target's tokenizer."""
        context = self.target.header.context_length or 0
        said = self.sizes.metadata(architecture, layers=layers, context=context)
        return said | self.target.tokenizer

    def _table(self, weights: FileWeights, tensor: TensorInfo) -> nn.Embedding:
        rows = torch.from_numpy(weights.rows(tensor).copy())
        return nn.Embedding.from_pretrained(rows, freeze=True)


def read_layers(target: TargetFile, kind: str, head: Path | None = None) -> tuple[int, ...]:
    """The layers of a target whose input rows a head reads.

    head: one that is trained further, whose layers stay; None: three layers, early, in the middle
    and late. Raises DrafterMismatchError for a target that hands their rows out to nobody.
    """
    count = target.layers
    if head:
        file = HeadFile(head, kind)
        require_fitting(head, file.header, target.path, target.header)
        layers = file.reads
    elif count < _FEWEST_LAYERS:
        raise refusal(target, kind, f"it has {count} layers, and rows of {_FEWEST_LAYERS} are read")
    else:
        early, late = min(2, count - _FEWEST_LAYERS), count - 1 - count // 16
        layers = early, (early + late + 1) // 2, late
    require_rows_read(target, kind, layers)
    return layers


def require_rows_read(target: TargetFile, kind: str, layers: Sequence[int]) -> None:
    """Raise DrafterMismatchError for a target that hands out no rows of these layers."""
    if problem := unreadable_rows(target.facts, layers):
        raise refusal(target, kind, problem)


def refusal(target: TargetFile, kind: str, why: str) -> DrafterMismatchError:
    """An error that names the kinds which this target leaves."""
    others = [each for each, is_left in _LEFT.items() if each != kind and is_left(target, kind)]
    named = " or ".join(filter(None, [", ".join(others[:-1]), *others[-1:]]))
    way_out = f"train --kind {named}" if named else "use --draft suffix"
    return DrafterMismatchError(f"no {kind} can be trained for {target.name}: {why}; {way_out}")


def _can_be_cut(target: TargetFile, _refused: str) -> bool:
    try:
        CutSource(target)
    except LocalspecError:
        return False
    return True


def _hands_out_rows(target: TargetFile, refused: str) -> bool:
    # Heads that read the same rows are refused together.
    return (
        refused not in (EAGLE3, DFLASH)
        and target.layers >= _FEWEST_LAYERS
        and not unreadable_rows(target.facts, range(_FEWEST_LAYERS))
    )


# By kind, whether it may be trained for a target of which another kind was refused.
_LEFT: Mapping[str, Callable[[TargetFile, str], bool]] = {
    MTP: lambda target, _refused: target.header.architecture in MTP_ARCHITECTURES,
    EAGLE3: _hands_out_rows,
    DFLASH: _hands_out_rows,
    MEDUSA: lambda _target, _refused: True,
    DRAFT_MODEL: _can_be_cut,
}


def places_behind(wanted: Tensor, later: int) -> Tensor:
    """Where the place so many further on is wanted; bool, (texts, length) as `wanted`."""
    return nn.functional.pad(wanted[:, later:], (0, later))


def places_before(wanted: Tensor, earlier: int) -> Tensor:
    """Where the place so many before is wanted."""
    return nn.functional.pad(wanted, (earlier, 0))[:, : wanted.shape[1]]
