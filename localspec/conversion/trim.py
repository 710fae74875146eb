"""Trim: a head whose output matrix has fewer tokens, those that matter (FR-Spec).

Zhao et al. 2025, https://arxiv.org/abs/2502.14856. A head multiplies its state with a row of the
output matrix for each token of the vocabulary, although few of them make up most of a text. The
tensor d2t says which token each remaining row is for. The target still decides every token.
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.conversion.convert import RECIPE, is_here, new_file
from localspec.conversion.draft_trial import DraftTrial
from localspec.conversion.draft_vocabulary import D2T, Ids, d2t_tensor
from localspec.conversion.target import TargetFile
from localspec.errors import InvalidValueError, ModelLoadError
from localspec.gguf.block_heads import DFLASH, DFLASH2, DSPARK
from localspec.gguf.check import check_drafter
from localspec.gguf.fingerprint import fingerprint as content_of
from localspec.gguf.heads import EAGLE3, MTP, kind_of, require_fitting
from localspec.gguf.matrix_heads import KINDS as MATRIX_KINDS
from localspec.gguf.reader import Array, Header, TensorInfo, display_name, read_header
from localspec.gguf.weights import Weights
from localspec.gguf.writer import Bytes, TensorData, TensorType, write_gguf
from localspec.hub.store import repository_of
from localspec.loading.fingerprints import fingerprint
from localspec.models.own_drafters import own_drafters
from localspec.models.trained_drafters import TrainedDrafter, add_trained, default_folder

TRIMMABLE = (EAGLE3, DFLASH, DFLASH2, DSPARK)
SOURCE = "localspec.trimmed.source"
_OUTPUT, _EMBEDDING = "output.weight", "token_embd.weight"
# Matrices with a row for each token that a head drafts.
_PER_TOKEN = (_OUTPUT, "markov_w2.weight")
_MOST_BY_DEFAULT, _SHARE_BY_DEFAULT = 32_768, 4
# ggml's numbers for the types of tokens that are no text.
_CONTROL, _USER_DEFINED = 3, 4
_REVISION = 1


@dataclass(frozen=True, slots=True)
class Trimmed:
    """A trimmed head.

    rows: of the output matrix, before and now. bytes: of what a drafted token reads of it, before
    and now. covered: the share of the counted tokens that it still drafts; None if none of them was
    known to the head. written: False where the file was there.
    """

    path: Path
    rows: tuple[int, int]
    bytes: tuple[int, int]
    covered: float | None
    written: bool


class DraftHead:
    """A head that can be trimmed. ids: the token of each row of its output matrix.

    Raises InvalidValueError for a drafter of another kind, DrafterMismatchError for one of another
    target, ModelLoadError for a broken file.
    """

    def __init__(self, path: Path, target: TargetFile) -> None:
        self.path, self.name = path, display_name(path.name)
        self.header = check_drafter(path)
        _require_map(self.name, self.header)
        require_fitting(path, self.header, target.path, target.header)
        self.target, self._weights = target, Weights(path)
        table = self.header.tensor(D2T)
        self.ids: Ids = np.arange(target.n_vocab, dtype=np.int64)
        if table:
            self.ids = self._weights.data(table).view("<i8").astype(np.int64)
            self._require_different()

    def _require_different(self) -> None:
        tokens, counts = np.unique(self.ids, return_counts=True)
        if counts.max(initial=0) > 1:
            raise ModelLoadError(
                f"{self.name} is broken: its d2t names token {tokens[counts.argmax()]} "
                f"{counts.max()} times; download it again, or convert it anew"
            )

    @property
    def output(self) -> tuple[Weights, TensorInfo]:
        """The matrix that makes its logits: its own, or the target's."""
        for name in (_OUTPUT, *((_EMBEDDING,) if kind_of(self.header) != EAGLE3 else ())):
            if found := self.header.tensor(name):
                return self._weights, found
        if self.target.output is None:
            raise InvalidValueError(
                f"{self.target.name} has no output matrix whose rows {self.name} could be given; "
                "pass a head with an output matrix of its own"
            )
        return self.target.output

    def with_rows(self, rows: NDArray[np.intp]) -> Iterator[TensorData]:
        """The tensors of the head with these rows of its output matrix."""
        yield d2t_tensor(self.ids[rows])
        yield _some_rows(_OUTPUT, *self.output, rows)
        for tensor in self.header.tensors:
            if tensor.name in _PER_TOKEN and tensor.name != _OUTPUT:
                yield _some_rows(tensor.name, self._weights, tensor, rows)
            elif tensor.name not in (D2T, _OUTPUT):
                yield self._weights.stored(tensor)


def trim(
    head: DraftHead,
    counts: NDArray[np.int64],
    needed: Collection[int],
    tokens: int | None = None,
    out: Path | None = None,
) -> Trimmed:
    """Write a head that drafts only some tokens; the head itself stays as it is.

    counts: how often each token of the target occurs in the texts that matter. Among tokens that
    occur equally often, the first in the vocabulary is kept: vocabularies begin with what is
    frequent. needed: tokens that are kept in any case. tokens: how many are kept; None is a
    quarter, at most 32768. out: None is a file beside the head, or of one in the Hub's cache, into
    which nothing is written, among localspec's drafters.

    Raises InvalidValueError for a number that makes no sense, or a file that is there.
    """
    count = default_tokens(head, needed) if tokens is None else tokens
    rows = chosen_rows(head, counts, needed, count)
    path = out or _default_path(head.path, count)
    if path.exists() and path.samefile(head.path):
        raise InvalidValueError(f"output is {path}, which is the head itself; name another file")
    request = [_REVISION, fingerprint(head.path), head.ids[rows].tolist()]
    recipe = hashlib.sha256(json.dumps(request).encode()).hexdigest()
    known = int(counts[head.ids].sum())
    found = Trimmed(
        path,
        (len(head.ids), count),
        _read_bytes(head, count),
        float(counts[head.ids[rows]].sum() / known) if known else None,
        written=not is_here(path, recipe),
    )
    if found.written:
        _write(head, rows, path, recipe)
    return found


def add_trimmed(
    done: Trimmed, head: DraftHead, before: DraftTrial, after: DraftTrial, plain: float
) -> bool:
    """Make a trimmed head one of its target's own drafters; whether `auto` takes it.

    It takes the place of the whole head where that is the one that `auto` takes, and the cut gains.
    before, after: the trials of both. plain: seconds of a step without drafts.
    """
    target, kind = head.target, kind_of(head.header) or EAGLE3
    path = done.path.absolute()
    listed = TrainedDrafter(kind, path, target.name, False)
    # Listed first, so that its name beside the target hides no other head.
    add_trained(target.path, listed)
    others = (each.file for each in own_drafters(target.path) if not each.objection)
    first = next((each for each in others if each and not each.samefile(path)), None)
    gains = after.speed(plain) >= before.speed(plain)
    is_taken = first is None or (gains and first.samefile(head.path))
    if is_taken:
        add_trained(target.path, replace(listed, preferred=True))
    return is_taken


def _default_path(head: Path, count: int) -> Path:
    if repository_of(head):
        # Files of several repositories may have one name.
        return default_folder() / f"{head.stem}-{content_of(head)[:8]}-{count}-tokens.gguf"
    return head.parent / f"{head.stem}-{count}-tokens.gguf"


def trim_in_place(path: Path, target: TargetFile, counts: NDArray[np.int64]) -> None:
    """Trim a head in its own file, to the default number of tokens; nothing is added about it.

    As the file of a trained head it is for this user alone.
    """
    trimmed = path.with_name(f"{path.name}.trimmed")
    try:
        trimmed.touch(0o600)
        _write_trimmed(trimmed, path, target, counts)
        # Windows replaces no file that is mapped; the head is gone by now.
        os.replace(trimmed, path)
    finally:
        trimmed.unlink(missing_ok=True)


def default_tokens(head: DraftHead, needed: Collection[int]) -> int:
    """How many tokens are kept where nobody says."""
    kept = min(_MOST_BY_DEFAULT, len(head.ids) // _SHARE_BY_DEFAULT)
    return max(kept, len({*needed} & {*head.ids.tolist()}), 1)


def needed_tokens(target: TargetFile, end_tokens: Collection[int]) -> set[int]:
    """The tokens that end a text or that the chat template writes as one token.

    end_tokens: those that end a generation.
    """
    metadata, vocabulary = target.header.metadata, target.facts.vocabulary
    found = {*end_tokens, *(vocabulary.special.values() if vocabulary else ())}
    template = target.facts.chat_template or ""
    texts, types = (metadata.get(f"tokenizer.ggml.{name}") for name in ("tokens", "token_type"))
    if isinstance(texts, Array) and isinstance(types, Array):
        for token, (text, kind) in enumerate(zip(texts, types, strict=False)):
            if kind in (_CONTROL, _USER_DEFINED) and text and text in template:
                found.add(token)
    return found


def chosen_rows(
    head: DraftHead, counts: NDArray[np.int64], needed: Collection[int], count: int
) -> NDArray[np.intp]:
    """The rows that `trim` keeps, by their tokens. Raises InvalidValueError."""
    if not 0 < count < len(head.ids):
        raise InvalidValueError(
            f"tokens is {count}; {head.name} drafts {len(head.ids)}, so name fewer, and at least 1"
        )
    keep = np.isin(head.ids, np.array([*needed], np.int64))
    if int(keep.sum()) > count:
        raise InvalidValueError(
            f"tokens is {count}; the chat template and the end of a text need {int(keep.sum())}, "
            "which are always kept: name more"
        )
    order = np.lexsort((head.ids, -counts[head.ids], ~keep))
    rows = order[:count]
    return rows[np.argsort(head.ids[rows])]


def _read_bytes(head: DraftHead, count: int) -> tuple[int, int]:
    """The bytes of matrices with a row per token, before and with `count` rows."""
    sizes = [head.output[1].size]
    sizes += [
        tensor.size
        for tensor in head.header.tensors
        if tensor.name in _PER_TOKEN and tensor.name != _OUTPUT
    ]
    before = sum(sizes)
    return before, before * count // len(head.ids)


def _write(head: DraftHead, rows: NDArray[np.intp], path: Path, recipe: str) -> None:
    about = {SOURCE: head.path.name, RECIPE: recipe}
    tensors = [*head.with_rows(rows)]
    with new_file(path, sum(tensor.size for tensor in tensors)) as part:
        write_gguf(part, head.header.architecture, {**head.header.metadata, **about}, tensors)
        target = head.target
        require_fitting(part, read_header(part), target.path, target.header)


def _write_trimmed(out: Path, path: Path, target: TargetFile, counts: NDArray[np.int64]) -> None:
    head, needed = DraftHead(path, target), needed_tokens(target, ())
    tensors = [*head.with_rows(chosen_rows(head, counts, needed, default_tokens(head, needed)))]
    write_gguf(out, head.header.architecture, head.header.metadata, tensors)


def _some_rows(
    name: str, weights: Weights, tensor: TensorInfo, rows: NDArray[np.intp]
) -> TensorData:
    """Rows of a matrix as they are stored: nothing is quantised again."""
    columns, count = tensor.shape
    data: Bytes = weights.data(tensor).reshape(count, -1)[rows]
    return TensorData(name, (len(rows), columns), TensorType(tensor.type), [data])


def _require_map(name: str, header: Header) -> None:
    """Raise InvalidValueError for a drafter whose graph reads no d2t."""
    kind = kind_of(header)
    if kind in TRIMMABLE:
        return
    if kind in MATRIX_KINDS.values():
        why = "is a file of Medusa heads or an MLP speculator, which have no d2t"
    elif kind == MTP:
        why = "has heads of multi-token prediction, whose graph in llama.cpp reads no d2t"
    else:
        why = f"is a model ({header.architecture}), whose graph in llama.cpp reads no d2t"
    raise InvalidValueError(
        f"{name} {why}, so that row and token must be equal; EAGLE-3, DFlash and DSpark heads can "
        "be trimmed"
    )
