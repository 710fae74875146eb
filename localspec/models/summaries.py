"""Summaries of models on disk: what decides who can draft for whom, read once and then cached."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from localspec import __version__
from localspec.errors import LocalspecError
from localspec.gguf.check import check_generative
from localspec.gguf.facts import Facts
from localspec.gguf.reader import read_header
from localspec.gguf.vocabulary import HeaderVocabulary
from localspec.utils.paths import cache_file, stat_signature
from localspec.utils.stored_json import stored, try_to_store


@dataclass(frozen=True, slots=True)
class VocabularySummary:
    """What identifies a vocabulary; equal summaries mean equal vocabularies.

    fingerprint: a SHA-256 of all tokens. n_vocab: the number of tokens. The other fields are as in
    HeaderVocabulary.
    """

    fingerprint: str
    n_vocab: int
    vocabulary_type: int
    bos: int
    eos: int
    adds_bos: bool
    adds_eos: bool


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """A model that generates text. file: its first file. parameters: how many weights it has.

    has_mtp: whether heads of multi-token prediction are inside. name: in its header, if any.
    """

    file: Path
    parameters: int
    vocabulary: VocabularySummary
    has_mtp: bool = False
    name: str | None = None


def summary_of(files: Sequence[Path]) -> ModelSummary | None:
    """Return the summary of the model in these files, from the cache if the files are unchanged.

    None where a file cannot be read, or where the model cannot generate text.
    """
    try:
        cached = cache_file("summaries", [__version__, *map(stat_signature, files)])
    except OSError:
        return None
    if known := stored(cached, lambda record: (_from_record(files[0], record),)):
        return known[0]
    summary = _read(files)
    try_to_store(cached, summary and _record(summary))
    return summary


class StoredVocabulary:
    """The vocabulary of a model on disk. Its tokens are read from the file on the first use."""

    def __init__(self, model: ModelSummary) -> None:
        summary = model.vocabulary
        self._file = model.file
        self.n_vocab = summary.n_vocab
        self.vocabulary_type = summary.vocabulary_type
        self.bos, self.adds_bos = summary.bos, summary.adds_bos
        self.eos, self.adds_eos = summary.eos, summary.adds_eos

    def token_text(self, token: int) -> bytes:
        """Return a token as the vocabulary spells it."""
        return self._header_vocabulary.token_text(token)

    @cached_property
    def _header_vocabulary(self) -> HeaderVocabulary:
        return HeaderVocabulary(read_header(self._file))


def _record(summary: ModelSummary) -> dict[str, Any]:
    return {
        "parameters": summary.parameters,
        "vocabulary": asdict(summary.vocabulary),
        "has_mtp": summary.has_mtp,
        "name": summary.name or "",
    }


def _from_record(file: Path, record: dict[str, Any] | None) -> ModelSummary | None:
    """The inverse of `_record`; a model that does not generate text is None in both."""
    if record is None:
        return None
    vocabulary = VocabularySummary(**record["vocabulary"])
    fields = {"parameters": int, "has_mtp": bool, "name": str, **VocabularySummary.__annotations__}
    values = {**record, **asdict(vocabulary)}
    for name, kind in fields.items():
        if type(values[name]) is not kind or (kind is int and abs(values[name]) >= 1 << 63):
            raise TypeError(f"{name} is something else")
    return ModelSummary(
        file, record["parameters"], vocabulary, record["has_mtp"], record["name"] or None
    )


def _read(files: Sequence[Path]) -> ModelSummary | None:
    try:
        header = check_generative(files[0])
        others = [tensor for file in files[1:] for tensor in read_header(file).tensors]
    except LocalspecError:
        return None
    found = HeaderVocabulary(header)
    names = VocabularySummary.__slots__
    vocabulary = VocabularySummary(**{name: getattr(found, name) for name in names})
    facts = Facts(tuple(files), header, [*header.tensors, *others])
    return ModelSummary(files[0], facts.parameters, vocabulary, facts.has_mtp, facts.name)
