"""Scaled head: an EAGLE-3 or DFlash head of a small model, for that model scaled up.

It has the width of the scaled target, reads its hidden rows, which are the small target's in
copies, and uses its embedding and output matrix. Why its function stays the same: see
`scaled_model`. Its pass costs what that of a head of a large model costs.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt

import numpy as np

from localspec.gguf.heads import EAGLE3
from localspec.gguf.reader import Array
from localspec.gguf.writer import Bytes, Floats, TensorData, TensorType, encode
from localspec.scaling.layout import Axis, Layout
from localspec.scaling.matrix import repeat_in_copies
from localspec.scaling.scaled_model import (
    layer_matrices,
    mean_square,
    scaled_matrix,
    scaled_metadata,
)
from localspec.scaling.shape import Shape
from localspec.scaling.source_model import SourceModel
from localspec.scaling.vocabulary_padding import VocabularyPadding, extra_tokens

# Norms of rows of the hidden state; others, of single heads, stay as they are.
_HIDDEN_NORMS = ("attn_norm", "attn_norm_2", "ffn_norm", "enc.output_norm")
_HEAD_NORMS = ("attn_q_norm", "attn_k_norm")


@dataclass(frozen=True)
class ScaledHead:
    """A head for a scaled target. target: its shape. layout: of the target. type: of matrices.

    Raises InvalidValueError for a head of other sizes than its target, or with matrices of its own.
    """

    source: SourceModel
    target: Shape
    layout: Layout
    type: TensorType

    @property
    def shape(self) -> Shape:
        """The sizes of the scaled head."""
        return replace(self.target, layers=self.source.shape.layers)

    @property
    def size(self) -> int:
        """The bytes of all tensors."""
        return sum(tensor.size for tensor in self.tensors)

    def metadata(self) -> dict[str, object]:
        """The head's metadata, with the sizes of the scaled one."""
        plain = self.source.epsilon * self._mean_square
        epsilon = self.padding.epsilon if self.padding else plain
        made = scaled_metadata(self.source, self.shape, epsilon)
        held, size = self.source.shape.vocabulary, self.target.vocabulary
        made |= self.source.extended_vocabulary(extra_tokens(held, size) if self.padding else {})
        if self.source.architecture == EAGLE3:
            made["eagle3.target_hidden_size"] = self.target.width
        return made

    @cached_property
    def padding(self) -> VocabularyPadding | None:
        """How the target's extra tokens are kept from being drafted; None without extra tokens.

        The constant is in the target's hidden rows, and `fc` hands it on.
        """
        if self.target.vocabulary == self.source.shape.vocabulary:
            return None
        return VocabularyPadding.of(
            self.layout.hidden.used_size,
            self.source.epsilon * self._mean_square,
            self.target.width,
            TensorType.Q8_0 if self.type == TensorType.Q4_0 else self.type,
        )

    @cached_property
    def tensors(self) -> list[TensorData]:
        """Every tensor, in the order of the file."""
        found = [self._fusion(), self._output_norm(), *self._layers()]
        found += [self._norm(name) for name in ("enc.output_norm",) if self._has(name)]
        self.source.require_all_in(found, "pass a head that uses the matrices of its target")
        return found

    @property
    def _mean_square(self) -> float:
        return mean_square(self.source, self.target, self.layout)

    def _has(self, name: str) -> bool:
        return f"{name}.weight" in self.source.tensors

    def _fusion(self) -> TensorData:
        """The matrix that reads the target's hidden rows, side by side."""
        layers = self.source.metadata[f"{self.source.architecture}.target_layers"]
        assert isinstance(layers, Array)
        columns = _side_by_side(self.layout.hidden, self.source.shape.width, len(layers))
        matrix = self._matrix("fc", self.layout.hidden, columns)
        return replace(matrix, chunks=self._with_constant(matrix)) if self.padding else matrix

    def _with_constant(self, fusion: TensorData) -> Iterator[Bytes]:
        """The rows of `fc`, one of which hands on the constant for extra tokens."""
        assert self.padding
        one = np.zeros((1, fusion.shape[1]), np.float32)
        one[0, self.padding.hidden_index] = 1
        place = self.padding.hidden_index
        for chunk in fusion.chunks:
            if 0 <= place < len(chunk):
                chunk = np.concatenate([chunk[:place], encode(one, self.type), chunk[place + 1 :]])
            place -= len(chunk)
            yield chunk

    def _layers(self) -> Iterator[TensorData]:
        hidden, width = self.layout.hidden, self.source.shape.width
        # EAGLE-3 reads a token's embedding and a state, side by side.
        read = _side_by_side(hidden, width, 2) if self.source.architecture == EAGLE3 else hidden
        for layer in range(self.source.shape.layers):
            for part, (rows, columns) in layer_matrices(self.layout, read).items():
                yield self._matrix(f"blk.{layer}.{part}", rows, columns)
            for part in _HIDDEN_NORMS:
                if self._has(f"blk.{layer}.{part}"):
                    yield self._norm(f"blk.{layer}.{part}")
            for part in _HEAD_NORMS:
                if self._has(name := f"blk.{layer}.{part}"):
                    weights = self.source.rows(f"{name}.weight")
                    yield TensorData.of(f"{name}.weight", weights, TensorType.F32)

    def _matrix(self, name: str, rows: Axis, columns: Axis) -> TensorData:
        return scaled_matrix(
            self.source,
            f"{name}.weight",
            rows,
            columns,
            self.type,
            writes_hidden=rows is self.layout.hidden,
        )

    def _norm(self, name: str) -> TensorData:
        return self._scaled_norm(name, self.layout.hidden)

    def _output_norm(self) -> TensorData:
        # As in the target: its output matrix has the embedding in all copies.
        values = self._scaled("output_norm", self.layout.hidden.first_copy)
        if self.padding:
            values[self.padding.hidden_index] = sqrt(self._mean_square) / self.padding.value
        return TensorData.of("output_norm.weight", values, TensorType.F32)

    def _scaled_norm(self, name: str, hidden: Axis) -> TensorData:
        values = self._scaled(name, hidden)
        return TensorData.of(f"{name}.weight", values, TensorType.F32)

    def _scaled(self, name: str, hidden: Axis) -> Floats:
        weights = self.source.rows(f"{name}.weight") * np.float32(sqrt(self._mean_square))
        values: Floats = repeat_in_copies(weights[None], hidden)[0]
        return values


def _side_by_side(hidden: Axis, width: int, count: int) -> Axis:
    """The axis of several rows of hidden state. width: of a row of the source."""
    starts = hidden.size * np.arange(count)[:, None]
    indices = tuple((starts + copy[:width]).reshape(-1) for copy in hidden.indices)
    return Axis(hidden.size * count, indices)
