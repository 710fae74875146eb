"""Fingerprint: identifies the content of a model file without reading all of it."""

import hashlib
from functools import lru_cache
from pathlib import Path

from localspec.gguf.files import files_of
from localspec.utils.paths import stat_signature

# The beginning has the metadata and the vocabulary. Of the weights, which two models seldom have in
# common, pieces from all over the file are enough; smaller files are read whole.
_BEGINNING, _PIECE, _PIECES = 16 << 20, 64 << 10, 64
_READ_WHOLE = 2 * _BEGINNING


def fingerprint(path: Path) -> str:
    """Return a SHA-256 of a model. path: of its file, or of the first part of a split model.

    Raises OSError.
    """
    return _fingerprint(tuple(tuple(stat_signature(file)) for file in files_of(path)))


@lru_cache
def _fingerprint(files: tuple[tuple[str | int, ...], ...]) -> str:
    """Return the fingerprint of files, each with its size and its time."""
    digest = hashlib.sha256()
    for path, size, _ in files:
        digest.update(f"{size}\n".encode())
        with open(path, "rb") as file:
            for start, count in _pieces(int(size)):
                file.seek(start)
                digest.update(file.read(count))
    return digest.hexdigest()


def _pieces(size: int) -> list[tuple[int, int]]:
    """Return where the pieces of a file begin and how long they are; the last one ends it."""
    if size <= _READ_WHOLE:
        return [(0, size)]
    step = (size - _BEGINNING - _PIECE) // (_PIECES - 1)
    starts = (size - _PIECE - number * step for number in reversed(range(_PIECES)))
    return [(0, _BEGINNING), *((start, _PIECE) for start in starts)]
