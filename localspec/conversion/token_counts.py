"""Token counts: how often each token of a model occurs in texts."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.errors import InvalidValueError
from localspec.gguf.reader import display_name
from localspec.utils.text_file import read_text_file

Counts = NDArray[np.int64]
# Letters that are tokenized at once.
_PIECE = 1 << 16


class Tokenizer(Protocol):
    """What counting needs of a model."""

    @property
    def n_vocab(self) -> int: ...

    def tokenize(self, text: str, *, add_special: bool = True) -> list[int]: ...


def count_texts(model: Tokenizer, texts: Iterable[str]) -> Counts:
    """Count the tokens of texts: (n_vocab,)."""
    found = np.zeros(model.n_vocab, np.int64)
    for text in texts:
        for piece in _pieces(text):
            found += count_ids(model.n_vocab, model.tokenize(piece, add_special=False))
    return found


def count_ids(n_vocab: int, ids: Sequence[int]) -> Counts:
    """Count token ids: (n_vocab,)."""
    return np.bincount(np.asarray(ids, np.int64), minlength=n_vocab)


def texts_in(path: Path, option: str = "--count") -> Iterator[str]:
    """The texts of a file, or of all files in a folder and below.

    In a folder, what is no UTF-8, hidden, or larger than 64 MB is left out. option: for messages.
    Raises InvalidValueError for a file that cannot be read, and for a folder without any text.
    """
    if not path.is_dir():
        yield _text(path, option)
        return
    found = False
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for name in sorted(each for each in files if not each.startswith(".")):
            try:
                text = _text(Path(folder, name), option)
            except InvalidValueError:
                continue
            found = found or bool(text)
            yield text
    if not found:
        raise InvalidValueError(
            f"{option} {display_name(path)}: there is no text in it; name files of UTF-8"
        )


def _text(path: Path, option: str) -> str:
    # A folder may hold pipes, which nobody writes to.
    return read_text_file(option, path, "name a file or folder of text", only_regular=True)


def _pieces(text: str) -> Iterator[str]:
    """A long text in pieces that end with a line where possible."""
    start = 0
    while start < len(text):
        end = min(len(text), start + _PIECE)
        if end < len(text) and (line := text.rfind("\n", start, end)) > start:
            end = line + 1
        yield text[start:end]
        start = end
