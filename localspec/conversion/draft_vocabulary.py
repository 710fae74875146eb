"""Draft vocabulary: the tokens that a published EAGLE-3 head can draft, as ids of its target."""

import numpy as np
from numpy.typing import NDArray

from localspec.conversion.published import Checkpoint
from localspec.conversion.target import TargetFile
from localspec.errors import DrafterMismatchError, ModelLoadError
from localspec.gguf.writer import Bytes, TensorData, TensorType
from localspec.models.vocabulary_match import MOST_SIZE_DIFFERENCE

Ids = NDArray[np.int64]
D2T = "d2t"
_OTHER = "convert it with the target that it was made for"


def d2t_tensor(ids: Ids) -> TensorData:
    """The tensor of a GGUF that maps the rows of an output matrix to tokens of the target."""
    data: Bytes = np.ascontiguousarray(ids, "<i8").view(np.uint8)
    return TensorData(D2T, ids.shape, TensorType.I64, [data])


def require_same_vocabulary(checkpoint: Checkpoint, target: TargetFile) -> None:
    """Raise DrafterMismatchError for a head of another vocabulary, as far as its size tells."""
    size = checkpoint.config.get("vocab_size")
    if isinstance(size, int) and abs(size - target.n_vocab) > MOST_SIZE_DIFFERENCE:
        raise DrafterMismatchError(
            f"{checkpoint.name} was made for a vocabulary of {size} tokens, and {target.name} has "
            f"{target.n_vocab}; {_OTHER}"
        )


def draft_ids(checkpoint: Checkpoint, target: TargetFile, rows: int | None) -> Ids | None:
    """The target's token of each row of the output matrix; None where row and token are equal.

    rows: of the published output matrix; None without one.
    Raises ModelLoadError for a broken map, and DrafterMismatchError for one of another target.
    """
    offsets = _whole_numbers(checkpoint, D2T)
    if offsets is None:
        if rows is None or rows >= target.n_vocab:
            return None
        if checkpoint.config.get("vocab_size") != rows:
            raise ModelLoadError(
                f"{checkpoint.name} drafts {rows} tokens of {target.n_vocab}, and has no d2t that "
                "says which; download every part of it"
            )
        return np.arange(rows, dtype=np.int64)
    if rows is not None and rows != len(offsets):
        raise ModelLoadError(
            f"{checkpoint.name} has {rows} rows of output and {len(offsets)} entries in d2t; "
            "download it again"
        )
    ids = _absolute(offsets, _whole_numbers(checkpoint, "t2d"))
    wrong = next((int(each) for each in ids if not 0 <= each < target.n_vocab), None)
    if wrong is not None:
        raise DrafterMismatchError(
            f"{checkpoint.name} drafts the token {wrong}, and the vocabulary of {target.name} has "
            f"{target.n_vocab}; {_OTHER}"
        )
    if len(ids) == 0 or len(np.unique(ids)) < len(ids):
        raise ModelLoadError(
            f"{checkpoint.name} has {'two rows for one token' if len(ids) else 'no entries'} in "
            "d2t; download it again"
        )
    return ids


def _absolute(offsets: Ids, known: Ids | None) -> Ids:
    """The tokens of d2t, which published heads store as the difference to the row.

    known: t2d, one for each token of the target that has a row. It tells the few checkpoints apart
    that store tokens themselves.
    """
    rows = np.arange(len(offsets), dtype=np.int64)
    if known is not None and np.array_equal(np.sort(offsets), np.flatnonzero(known)):
        return offsets
    return offsets + rows


def _whole_numbers(checkpoint: Checkpoint, name: str) -> Ids | None:
    tensor = checkpoint.tensors.get(name) or checkpoint.tensors.get(f"model.{name}")
    if tensor is None:
        return None
    found = tensor.whole_numbers()
    if found is None:
        raise ModelLoadError(
            f"{checkpoint.name} stores {name} as {checkpoint.types[tensor.name]}, not as whole "
            "numbers; download it again"
        )
    return found
