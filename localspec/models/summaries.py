"""Profiles: as much of a model as tells who may draft for it, kept so that it is read once."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from localspec import __version__
from localspec.errors import LocalspecError
from localspec.gguf.check import check_generative
from localspec.gguf.facts import Facts
from localspec.gguf.reader import read_header
from localspec.gguf.vocabulary import HeaderVocabulary
from localspec.models.vocabulary_match import mismatch
from localspec.utils.paths import cache_file, stat_signature, write_atomically


@dataclass(frozen=True, slots=True)
class Brief:
    """A vocabulary in brief. Two that are equal are the same vocabulary."""

    fingerprint: str
    n_vocab: int
    vocabulary_type: int
    bos: int
    eos: int
    adds_bos: bool
    adds_eos: bool


@dataclass(frozen=True, slots=True)
class Profile:
    """A model that generates text, in brief."""

    file: Path
    parameters: int
    vocabulary: Brief


class Matchmaker:
    """Knows which models may draft for which. Vocabularies are compared once per two kinds."""

    def __init__(self) -> None:
        self._fits: dict[tuple[Brief, Brief], bool] = {}

    def drafters(self, target: Profile, models: Iterable[Profile]) -> list[Profile]:
        """Those that are smaller and speak its vocabulary, the smallest first."""
        fitting = [
            model
            for model in models
            if model.parameters < target.parameters and self._fit(target, model)
        ]
        return sorted(fitting, key=lambda model: model.parameters)

    def _fit(self, target: Profile, drafter: Profile) -> bool:
        if target.vocabulary == drafter.vocabulary:
            return True
        key = target.vocabulary, drafter.vocabulary
        if key not in self._fits:
            self._fits[key] = mismatch(_Remembered(target), _Remembered(drafter)) is None
        return self._fits[key]


def profile_of(files: Sequence[Path]) -> Profile | None:
    """The profile of a model by its files; None where they hold none that generates text."""
    try:
        kept = cache_file("profiles", [__version__, *map(stat_signature, files)])
    except OSError:
        return None
    with suppress(OSError, ValueError, TypeError, KeyError):
        record = json.loads(kept.read_text(encoding="utf-8"))
        return record and Profile(files[0], record["parameters"], Brief(**record["vocabulary"]))
    with _times_kept(files):
        profile = _read(files)
    record = profile and {
        "parameters": profile.parameters,
        "vocabulary": asdict(profile.vocabulary),
    }
    with suppress(OSError):  # then it is read again the next time
        write_atomically(kept, json.dumps(record))
    return profile


@contextmanager
def _times_kept(files: Sequence[Path]) -> Iterator[None]:
    """Looking at a model is not using it: when it was used last must be told afterwards."""
    before = [file.stat() for file in files]
    try:
        yield
    finally:
        for file, status in zip(files, before, strict=True):
            with suppress(OSError):
                os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def _read(files: Sequence[Path]) -> Profile | None:
    try:
        header = check_generative(files[0])
        others = [tensor for file in files[1:] for tensor in read_header(file).tensors]
    except LocalspecError:
        return None
    vocabulary = HeaderVocabulary(header)
    brief = Brief(**{name: getattr(vocabulary, name) for name in Brief.__slots__})
    parameters = Facts(tuple(files), header, [*header.tensors, *others]).parameters
    return Profile(files[0], parameters, brief)


class _Remembered:
    """A vocabulary whose tokens are read from the file only if they are looked at."""

    def __init__(self, profile: Profile) -> None:
        brief = profile.vocabulary
        self._file = profile.file
        self.n_vocab = brief.n_vocab
        self.vocabulary_type = brief.vocabulary_type
        self.bos, self.adds_bos = brief.bos, brief.adds_bos
        self.eos, self.adds_eos = brief.eos, brief.adds_eos

    @cached_property
    def _vocabulary(self) -> HeaderVocabulary:
        with _times_kept([self._file]):
            return HeaderVocabulary(read_header(self._file))

    def token_text(self, token: int) -> bytes:
        return self._vocabulary.token_text(token)
