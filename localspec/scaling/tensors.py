"""The tensors of a scaled model, made as they are written.

The source has width n and stands c times (see `scale_layout`) in a width N. Why the function is
the same:

    RMS norm        the mean square of all copies is c n / N times that of the source, so weights
                    times sqrt(c n / N) and epsilon times c n / N give equal results
    extra units     heads and feed-forward units read the hidden state through random weights,
                    and nothing reads them: their columns in the output projection are zero
    extra layers    are made of extra units only
    extra tokens    see `Padding`

Random weights keep every multiplication from being a trivial one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from localspec.errors import InvalidValueError
from localspec.gguf.reader import Array
from localspec.scaling.layout import Axis, Layout
from localspec.scaling.matrix import matrix, random_rows, repeated, summed, zero_rows
from localspec.scaling.shape import Shape
from localspec.scaling.source import Bytes, Kind, Source, Tensor, decode, encode

# The logit of an extra token is this over the root mean square of the last hidden state; 16-bit
# floats end at 65504.
_NEVER = -60_000.0
_EMBEDDING, _OUTPUT, _OUTPUT_NORM = "token_embd.weight", "output.weight", "output_norm.weight"
# Turns positions into angles; it depends on the size of a head only.
_CARRIED = "rope_freqs.weight"
_NORMS = ("attn_norm", "ffn_norm")
# llama.cpp's number for a kind of token, and a score below all real ones.
_UNUSED, _LEAST_SCORE = 5, -1e6


@dataclass(frozen=True, slots=True)
class Padding:
    """How extra tokens get a logit that never wins, without a bias in the model.

    The embedding writes a constant `value` into one more `place` of the hidden state, which no
    layer reads or changes. Its square in the norms is taken out of epsilon. After the last norm it
    is a number above zero, and only the extra tokens' rows of the output matrix read it (so that
    matrix can no longer be the embedding's).
    """

    place: int
    value: float
    epsilon: float


@dataclass(frozen=True)
class Plan:
    """What is made of a source."""

    source: Source
    shape: Shape
    layout: Layout
    kind: Kind

    @property
    def embedding(self) -> Kind:
        """The type of the matrices over the vocabulary.

        As the embedding, no other copy of the input could make up for four bits.
        """
        coarse = self.kind == Kind.Q4_0 != self.source.kind(_EMBEDDING)
        return Kind.Q8_0 if coarse else self.kind

    @property
    def mean_square(self) -> float:
        """That of the scaled hidden state over that of the source."""
        return self.layout.copies * self.source.shape.width / self.shape.width

    @property
    def epsilon(self) -> float:
        """For every norm."""
        return self.padding.epsilon if self.padding else self.source.epsilon * self.mean_square

    @cached_property
    def padding(self) -> Padding | None:
        """Where there are extra tokens."""
        if self.shape.vocabulary == self.source.shape.vocabulary:
            return None
        squares = self.source.epsilon * self.mean_square * self.shape.width
        block = np.zeros((1, 32), np.float32)
        block[0, 0] = sqrt(squares / 2)
        value = float(decode(encode(block, self.embedding), self.embedding)[0, 0])
        return Padding(self.layout.hidden.end, value, (squares - value**2) / self.shape.width)

    @cached_property
    def tensors(self) -> list[Tensor]:
        """Every tensor, in the order of the file. Raises InvalidValueError for one unheard of."""
        found = [*self._around(), *self._layers()]
        unheard = self.source.tensors.keys() - {tensor.name for tensor in found}
        if unheard:
            raise InvalidValueError(
                f"{self.source.path.name} has a tensor {min(unheard)}, which cannot be scaled; "
                "pass a plain llama model"
            )
        return found

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.size for tensor in self.tensors)

    # Before and behind the layers.

    def _around(self) -> Iterator[Tensor]:
        yield self._embedding()
        yield self._output_norm()
        if _OUTPUT in self.source.tensors or self.padding:
            yield self._output()
        if _CARRIED in self.source.tensors:
            factors = self.source.rows(_CARRIED)
            yield Tensor(_CARRIED, factors.shape, Kind.F32, [encode(factors, Kind.F32)])

    def _embedding(self) -> Tensor:
        def read(which: NDArray[np.intp]) -> Bytes:
            rows = repeated(self.source.rows(_EMBEDDING, which), self.layout.hidden)
            if self.padding:
                rows[:, self.padding.place] = self.padding.value
            return encode(rows, self.embedding)

        filler = zero_rows(self.shape.width, self.embedding)
        return self._over_tokens(_EMBEDDING, matrix(read, self.layout.tokens, filler))

    def _output(self) -> Tensor:
        name = _OUTPUT if _OUTPUT in self.source.tensors else _EMBEDDING

        def read(which: NDArray[np.intp]) -> Bytes:
            first = self.layout.hidden.first
            return encode(repeated(self.source.rows(name, which), first), self.embedding)

        filler = zero_rows(self.shape.width, self.embedding)
        if self.padding:
            never = np.zeros((len(filler), self.shape.width), np.float32)
            never[:, self.padding.place] = _NEVER
            filler = encode(never, self.embedding)
        return self._over_tokens(_OUTPUT, matrix(read, self.layout.tokens, filler))

    def _over_tokens(self, name: str, chunks: Iterator[Bytes]) -> Tensor:
        shape = (self.shape.vocabulary, self.shape.width)
        return Tensor(name, shape, self.embedding, chunks)

    def _output_norm(self) -> Tensor:
        """The output matrix reads one copy; a tied one holds the embedding in all of them."""
        weights = self.source.rows(_OUTPUT_NORM) * sqrt(self.mean_square)
        values = repeated(weights[None], self.layout.hidden.first)
        if self.padding:
            values[0, self.padding.place] = sqrt(self.mean_square) / self.padding.value
        return _vector(_OUTPUT_NORM, encode(values, Kind.F32))

    # The layers.

    def _layers(self) -> Iterator[Tensor]:
        for layer in range(self.shape.layers):
            real = layer < self.source.shape.layers
            for part, (rows, columns) in self._matrices().items():
                yield self._matrix(f"blk.{layer}.{part}.weight", rows, columns, real)
                bias = f"blk.{layer}.{part}.bias"
                if bias in self.source.tensors:
                    values = repeated(self.source.rows(bias)[None], rows)
                    yield _vector(bias, encode(values, Kind.F32))
            for part in _NORMS:
                yield self._norm(f"blk.{layer}.{part}.weight", real)

    def _matrices(self) -> dict[str, tuple[Axis, Axis]]:
        """What each matrix of a layer writes and reads."""
        its = self.layout
        return {
            "attn_q": (its.heads, its.hidden),
            "attn_k": (its.kv_heads, its.hidden),
            "attn_v": (its.kv_heads, its.hidden),
            "attn_output": (its.hidden, its.heads),
            "ffn_gate": (its.units, its.hidden),
            "ffn_up": (its.units, its.hidden),
            "ffn_down": (its.hidden, its.units),
        }

    def _matrix(self, name: str, rows: Axis, columns: Axis, real: bool) -> Tensor:
        def read(which: NDArray[np.intp]) -> Bytes:
            return summed(self.source.rows(name, which), columns, self.kind)

        adds_up = rows is self.layout.hidden
        filler = (zero_rows if adds_up else random_rows)(columns.size, self.kind)
        held = rows if real else Axis(rows.size, ())
        shape = (rows.size, columns.size)
        return Tensor(name, shape, self.kind, matrix(read, held, filler))

    def _norm(self, name: str, real: bool) -> Tensor:
        ones = np.ones(self.source.shape.width, np.float32)
        weights = (self.source.rows(name) if real else ones) * np.float32(sqrt(self.mean_square))
        return _vector(name, encode(repeated(weights[None], self.layout.hidden), Kind.F32))


def _vector(name: str, row: Bytes) -> Tensor:
    return Tensor(name, (row.size // 4,), Kind.F32, [row])


def padded_tokens(plan: Plan) -> dict[str, object]:
    """The lists of a longer vocabulary, as metadata."""
    if not plan.padding:
        return {}
    held, wanted = plan.source.shape.vocabulary, plan.shape.vocabulary
    extra: dict[str, list[object]] = {
        "tokens": [f"<|extra_{number}|>" for number in range(held, wanted)],
        "token_type": [_UNUSED] * (wanted - held),
        "scores": [_LEAST_SCORE] * (wanted - held),
    }
    lists = {f"tokenizer.ggml.{name}": values for name, values in extra.items()}
    own = plan.source.metadata
    return {key: [*_listed(own[key]), *values] for key, values in lists.items() if key in own}


def _listed(value: object) -> Array:
    assert isinstance(value, Array)
    return value
