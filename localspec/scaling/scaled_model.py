"""Scaled model: the tensors of a large model that computes the function of a small one.

The source has width n, and stands c times in a width N (see `layout`). Why the function stays the
same:

    RMS norm        the mean square of all copies is c n / N times that of the source, so weights
                    times sqrt(c n / N) and epsilon times c n / N give equal results
    extra units     heads and feed-forward units read the hidden state through random weights,
                    and nothing reads them: their columns in the output projection are zero
    extra layers    consist of extra units only
    extra tokens    see `VocabularyPadding`

The weights of extra units are random so that no backend can skip their multiplications.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from localspec.gguf.writer import Bytes, Floats, TensorData, TensorType, encode
from localspec.scaling.layout import Axis, Layout
from localspec.scaling.matrix import (
    encode_as_sum,
    matrix_chunks,
    random_rows,
    repeat_in_copies,
    zero_rows,
)
from localspec.scaling.shape import Shape
from localspec.scaling.source_model import SourceModel
from localspec.scaling.vocabulary_padding import EXTRA_LOGIT, VocabularyPadding, extra_tokens

_EMBEDDING, _OUTPUT, _OUTPUT_NORM = "token_embd.weight", "output.weight", "output_norm.weight"
# Depends on the size of a head only, which scaling does not change.
_ROPE_FACTORS = "rope_freqs.weight"
_NORMS = ("attn_norm", "ffn_norm")


@dataclass(frozen=True)
class ScaledModel:
    """A source in a larger shape. type: of the weights in its matrices."""

    source: SourceModel
    shape: Shape
    layout: Layout
    type: TensorType

    @property
    def vocabulary_type(self) -> TensorType:
        """The type of the embedding and of the output matrix.

        Not Q4_0: copies make up for four bits in what reads the hidden state, and nothing does in
        the embedding, which writes it.
        """
        coarse = self.type == TensorType.Q4_0 != self.source.tensor_type(_EMBEDDING)
        return TensorType.Q8_0 if coarse else self.type

    @property
    def mean_square(self) -> float:
        """The mean square of the hidden state, divided by that of the source's hidden state."""
        return mean_square(self.source, self.shape, self.layout)

    @property
    def epsilon(self) -> float:
        """The epsilon of every norm."""
        return self.padding.epsilon if self.padding else self.source.epsilon * self.mean_square

    @cached_property
    def padding(self) -> VocabularyPadding | None:
        """How extra tokens are kept from being chosen; None without extra tokens."""
        if self.shape.vocabulary == self.source.shape.vocabulary:
            return None
        return VocabularyPadding.of(
            self.layout.hidden.used_size,
            self.source.epsilon * self.mean_square,
            self.shape.width,
            self.vocabulary_type,
        )

    @cached_property
    def tensors(self) -> list[TensorData]:
        """Every tensor, in the order of the file.

        Raises InvalidValueError if the source has a tensor that a plain llama model does not have.
        """
        found = [*self._around(), *self._layers()]
        self.source.require_all_in(found, "pass a plain llama model")
        return found

    @property
    def size(self) -> int:
        """The bytes of all tensors."""
        return sum(tensor.size for tensor in self.tensors)

    def metadata(self) -> dict[str, object]:
        """The source's metadata, with the sizes and the vocabulary of this model."""
        held, size = self.source.shape.vocabulary, self.shape.vocabulary
        tokens = extra_tokens(held, size) if self.padding else {}
        return {
            **scaled_metadata(self.source, self.shape, self.epsilon),
            **self.source.extended_vocabulary(tokens),
        }

    # Before and behind the layers.

    def _around(self) -> Iterator[TensorData]:
        yield self._embedding()
        yield self._output_norm()
        if _OUTPUT in self.source.tensors or self.padding:
            yield self._output()
        if _ROPE_FACTORS in self.source.tensors:
            yield _vector(_ROPE_FACTORS, self.source.rows(_ROPE_FACTORS))

    def _embedding(self) -> TensorData:
        def read(which: NDArray[np.intp]) -> Bytes:
            rows = repeat_in_copies(self.source.rows(_EMBEDDING, which), self.layout.hidden)
            if self.padding:
                rows[:, self.padding.hidden_index] = self.padding.value
            return encode(rows, self.vocabulary_type)

        filler = zero_rows(self.shape.width, self.vocabulary_type)
        return self._over_tokens(_EMBEDDING, matrix_chunks(read, self.layout.tokens, filler))

    def _output(self) -> TensorData:
        name = _OUTPUT if _OUTPUT in self.source.tensors else _EMBEDDING

        def read(which: NDArray[np.intp]) -> Bytes:
            first = self.layout.hidden.first_copy
            return encode(
                repeat_in_copies(self.source.rows(name, which), first), self.vocabulary_type
            )

        filler = zero_rows(self.shape.width, self.vocabulary_type)
        if self.padding:
            never = np.zeros((len(filler), self.shape.width), np.float32)
            never[:, self.padding.hidden_index] = EXTRA_LOGIT
            filler = encode(never, self.vocabulary_type)
        return self._over_tokens(_OUTPUT, matrix_chunks(read, self.layout.tokens, filler))

    def _over_tokens(self, name: str, chunks: Iterator[Bytes]) -> TensorData:
        shape = (self.shape.vocabulary, self.shape.width)
        return TensorData(name, shape, self.vocabulary_type, chunks)

    def _output_norm(self) -> TensorData:
        """Zero but for the first copy: a tied output matrix has the embedding in all copies."""
        weights = self.source.rows(_OUTPUT_NORM) * sqrt(self.mean_square)
        values = repeat_in_copies(weights[None], self.layout.hidden.first_copy)
        if self.padding:
            values[0, self.padding.hidden_index] = sqrt(self.mean_square) / self.padding.value
        return _vector(_OUTPUT_NORM, values[0])

    # The layers.

    def _layers(self) -> Iterator[TensorData]:
        for layer in range(self.shape.layers):
            real = layer < self.source.shape.layers
            for part, (rows, columns) in self._matrices().items():
                yield self._matrix(f"blk.{layer}.{part}.weight", rows, columns, real)
                bias = f"blk.{layer}.{part}.bias"
                if bias in self.source.tensors:
                    yield _vector(bias, repeat_in_copies(self.source.rows(bias)[None], rows)[0])
            for part in _NORMS:
                yield self._norm(f"blk.{layer}.{part}.weight", real)

    def _matrices(self) -> dict[str, tuple[Axis, Axis]]:
        return layer_matrices(self.layout, self.layout.hidden)

    def _matrix(self, name: str, rows: Axis, columns: Axis, real: bool) -> TensorData:
        held = rows if real else Axis(rows.size, ())
        writes_hidden = rows is self.layout.hidden
        return scaled_matrix(
            self.source, name, held, columns, self.type, writes_hidden=writes_hidden
        )

    def _norm(self, name: str, real: bool) -> TensorData:
        ones = np.ones(self.source.shape.width, np.float32)
        weights = (self.source.rows(name) if real else ones) * np.float32(sqrt(self.mean_square))
        return _vector(name, repeat_in_copies(weights[None], self.layout.hidden)[0])


# What a scaled head shares with its target.


def mean_square(source: SourceModel, shape: Shape, layout: Layout) -> float:
    """The mean square of the hidden state, divided by that of the source's hidden state."""
    return layout.copies * source.shape.width / shape.width


def scaled_metadata(source: SourceModel, shape: Shape, epsilon: float) -> dict[str, object]:
    """The source's metadata with these sizes. epsilon: of the norms."""
    sizes: dict[str, object] = {
        "embedding_length": shape.width,
        "block_count": shape.layers,
        "feed_forward_length": shape.ffn,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "attention.layer_norm_rms_epsilon": epsilon,
        "rope.dimension_count": shape.head_dim,
        "vocab_size": shape.vocabulary,
    }
    return {
        **source.metadata,
        "general.name": f"{source.name} scaled to {shape.label}",
        "general.size_label": shape.label,
        **{f"{source.architecture}.{key}": value for key, value in sizes.items()},
    }


def layer_matrices(layout: Layout, read: Axis) -> dict[str, tuple[Axis, Axis]]:
    """By the name of each matrix of a layer: its rows (output) and its columns (input).

    read: what the attention reads.
    """
    return {
        "attn_q": (layout.heads, read),
        "attn_k": (layout.kv_heads, read),
        "attn_v": (layout.kv_heads, read),
        "attn_output": (layout.hidden, layout.heads),
        "ffn_gate": (layout.units, layout.hidden),
        "ffn_up": (layout.units, layout.hidden),
        "ffn_down": (layout.hidden, layout.units),
    }


def scaled_matrix(
    source: SourceModel,
    name: str,
    rows: Axis,
    columns: Axis,
    type_: TensorType,
    *,
    writes_hidden: bool,
) -> TensorData:
    """A matrix of the source in a larger one. writes_hidden: whether its rows are hidden state."""

    def read(which: NDArray[np.intp]) -> Bytes:
        return encode_as_sum(source.rows(name, which), columns, type_)

    filler = (zero_rows if writes_hidden else random_rows)(columns.size, type_)
    shape = (rows.size, columns.size)
    return TensorData(name, shape, type_, matrix_chunks(read, rows, filler))


def _vector(name: str, values: Floats) -> TensorData:
    return TensorData.of(name, values, TensorType.F32)
