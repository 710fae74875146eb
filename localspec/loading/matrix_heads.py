"""Matrix heads: Medusa heads and MLP speculators with their weights, which several texts share."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from time import perf_counter

import numpy as np

from localspec.control.cost_profile import DrafterSeconds
from localspec.drafters.medusa import Medusa, MedusaHead
from localspec.drafters.mlp_speculator import MlpSpeculator, Stage
from localspec.drafters.output_row import Vector
from localspec.errors import DrafterMismatchError
from localspec.gguf.facts import Facts
from localspec.gguf.matrix_heads import (
    ALIGNMENT,
    MEDUSA,
    MatrixHead,
    matrix_head_of,
    tensor_of,
)
from localspec.gguf.reader import TensorInfo, display_name, read_header
from localspec.gguf.weights import Weights
from localspec.llama.matrix import Matrix, require_functions
from localspec.llama.pass_timing import least_seconds
from localspec.llama.sequence import KVSequence
from localspec.loading.head_check import trial_rows
from localspec.models.vocabulary_match import MOST_SIZE_DIFFERENCE
from localspec.speculation.drafter import Drafter
from localspec.speculation.passes import OUTPUT
from localspec.utils.option_names import options

# The target's output matrix; a model without one uses its embedding.
_OUTPUTS = ("output.weight", "token_embd.weight")


def checked_matrix_head(target: Facts, drafter: Facts) -> MatrixHead:
    """Return what is in a file of matrix heads.

    Raises DrafterMismatchError if they were made for another target, and ModelLoadError for a
    broken file or a build of llama.cpp that cannot multiply single matrices.
    """
    require_functions()
    head = matrix_head_of(drafter.files[0], drafter.header)
    require_target(drafter.files[0], head, target)
    if not head.has_output:
        _output_of(target, head)
    return head


def require_output_rows(target: KVSequence, name: str, head: MatrixHead) -> None:
    """Raise DrafterMismatchError where this target hands out no rows behind its output norm.

    The target's text stays as it is.
    """
    rows = trial_rows(target, OUTPUT)
    fits = rows.shape[1] == head.width and np.isfinite(rows).all() and rows.any()
    if not fits:
        raise DrafterMismatchError(
            f"{display_name(name)} cannot draft for {display_name(target.model.path.name)}: "
            "llama.cpp hands out no rows behind the output norm of this architecture; "
            f"use {options(draft='suffix')}"
        )


class LoadedMatrixHead:
    """The matrices of heads. path: their file. size: its bytes. threads: of the CPU."""

    def __init__(self, path: Path, head: MatrixHead, target: Facts, threads: int) -> None:
        self.path = path
        self._head = head
        self.size = path.stat().st_size
        self.threads = threads
        self._header = read_header(path)
        self._weights = Weights(path)
        self._matrices: dict[tuple[Path, int], Matrix] = {}
        if not head.has_output:
            file, tensor = _output_of(target, head)
            self._targets_output = self._matrix(Weights(file), tensor)

    def drafter(self, n_vocab: int) -> Drafter:
        """A drafter for another text. n_vocab: the target's vocabulary size."""
        name = self.path.stem
        if self._head.kind == MEDUSA:
            return Medusa(self._medusa_heads, name=name, n_vocab=n_vocab)
        return MlpSpeculator(
            self._stages,
            name=name,
            n_vocab=n_vocab,
            known_tokens=self._head.n_vocab,
            scale_input=self._head.scale_input,
        )

    def set_threads(self, threads: int) -> None:
        """Multiply with another number of threads from now on; no product may be running."""
        self.threads = threads
        for matrix in self._matrices.values():
            matrix.threads = threads

    def seconds(self) -> DrafterSeconds:
        """Measure what a drafted token takes: each takes as long, and reading takes nothing."""
        took = least_seconds(self._seconds_of_token)
        return DrafterSeconds(took, took, 0.0)

    @cached_property
    def _medusa_heads(self) -> list[MedusaHead]:
        return [
            MedusaHead(
                [
                    (
                        self._own(f"head.{k}.block.{i}.weight"),
                        self._vector(f"head.{k}.block.{i}.bias"),
                    )
                    for i in range(self._head.blocks)
                ],
                self._output(k),
            )
            for k in range(self._head.heads)
        ]

    @cached_property
    def _stages(self) -> list[Stage]:
        return [
            Stage(
                self._own(f"head.{k}.proj.weight"),
                self._embedding(self._tensor(f"head.{k}.token_embd.weight")),
                self._vector(f"head.{k}.norm.weight"),
                self._vector(f"head.{k}.norm.bias"),
                self._output(k),
            )
            for k in range(self._head.heads)
        ]

    def _seconds_of_token(self) -> float:
        began = perf_counter()
        self._first_token()
        return perf_counter() - began

    def _first_token(self) -> None:
        row = np.ones(self._head.width, np.float32)
        if self._head.kind == MEDUSA:
            self._medusa_heads[0].logits(row)
        else:
            stage = self._stages[0]
            stage.output.times(stage.next_state(row, 0, 1.0))

    def _output(self, k: int) -> Matrix:
        return (
            self._own(f"head.{k}.output.weight") if self._head.has_output else self._targets_output
        )

    def _own(self, name: str) -> Matrix:
        return self._matrix(self._weights, self._tensor(name))

    def _matrix(self, weights: Weights, tensor: TensorInfo) -> Matrix:
        """A matrix, which heads share that have the same tensor."""
        key = weights.path, tensor.offset
        if key not in self._matrices:
            columns, rows = tensor.shape
            data = weights.data(tensor)
            self._matrices[key] = Matrix(
                data, tensor.type, rows=rows, columns=columns, threads=self.threads
            )
        return self._matrices[key]

    def _embedding(self, tensor: TensorInfo) -> Callable[[int], Vector]:
        return lambda token: self._weights.rows(tensor, token)

    def _vector(self, name: str) -> Vector:
        return self._weights.rows(self._tensor(name))

    def _tensor(self, name: str) -> TensorInfo:
        return tensor_of(self.path, self._header, name)


def require_target(path: Path, head: MatrixHead, target: Facts) -> None:
    """Raise DrafterMismatchError for heads of another target."""
    name, of = display_name(path.name), display_name(target.files[0].name)
    width = target.number("embedding_length") or 0
    n_vocab = target.vocabulary.n_vocab if target.vocabulary else 0
    remedy = f"use the heads that were made for this model, or {options(draft='suffix')}"
    if head.width != width:
        raise DrafterMismatchError(
            f"{name} reads rows of {head.width} numbers, and those of {of} have {width}; {remedy}"
        )
    if abs(head.n_vocab - n_vocab) > MOST_SIZE_DIFFERENCE:
        raise DrafterMismatchError(
            f"{name} knows {head.n_vocab} tokens, and the vocabulary of {of} has {n_vocab}; "
            f"{remedy}"
        )


def _require_output_fitting(path: Path, tensor: TensorInfo | None, head: MatrixHead) -> TensorInfo:
    """Return the target's output matrix, which these heads use. path: of the target.

    Raises DrafterMismatchError where it has none that they can use.
    """
    fits = tensor and len(tensor.shape) == 2 and tensor.shape[0] == head.width
    if tensor and fits and tensor.offset % ALIGNMENT == 0:
        return tensor
    raise DrafterMismatchError(
        f"{display_name(path.name)} has no output matrix for rows of {head.width} numbers, and "
        "these heads have none either; convert them with their own"
    )


def _output_of(target: Facts, head: MatrixHead) -> tuple[Path, TensorInfo]:
    """Find the target's output matrix in its files."""
    file, tensor = target.located(*_OUTPUTS) or (target.files[0], None)
    return file, _require_output_fitting(target.files[0], tensor, head)
