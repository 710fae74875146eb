"""Past texts on disk for the suffix drafter: opt-in, bounded, deletable, private to their owner.

There is one file per vocabulary: a first line, a checksum, then the tokens of all texts as
little-endian 32-bit integers, with -1 after each text. A file is always replaced as a whole.
"""

import zlib
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np

from localspec.errors import InvalidValueError
from localspec.utils.bounded_file import read_regular
from localspec.utils.folder_lock import locked_folder
from localspec.utils.paths import atomic_writer, cache_folder

_FIRST_LINE = b"localspec past texts 1\n"
_HEAD = len(_FIRST_LINE) + 4  # and the CRC-32 of the rest
_CLOSE, _LARGEST = -1, 2**31 - 1
# An index of them takes 140 bytes per token.
MOST_TOKENS = 200_000
_TOKENS, _BROKEN, _TEMPORARY = ".tokens", ".broken", ".tmp"


def default_folder() -> Path:
    """The default folder of past texts, in the user's cache."""
    return cache_folder("past")


def clear_all(folder: Path | None = None) -> None:
    """Delete the past texts of every vocabulary. Raises OSError if that is impossible."""
    folder = folder or default_folder()
    for suffix in (_TOKENS, _BROKEN, _TEMPORARY):
        for path in folder.glob(f"*{suffix}"):
            path.unlink(missing_ok=True)


class PastTexts:
    """The texts kept for one vocabulary.

    vocabulary: the fingerprint of the vocabulary. folder: the folder of the file.
    max_tokens, max_bytes: the most that is kept; the oldest texts are dropped first.

    An error never stops decoding: if past texts cannot be read or kept, `problem` says why in one
    line (of the last error), and drafting goes on without them. Several processes may add texts at
    once.
    """

    def __init__(
        self,
        vocabulary: str,
        folder: Path | None = None,
        *,
        max_tokens: int = MOST_TOKENS,
        max_bytes: int = 1_000_000,
    ) -> None:
        if max_tokens < 1 or max_bytes < _HEAD + 8:
            raise InvalidValueError(
                f"max_tokens is {max_tokens} and max_bytes {max_bytes}; "
                f"they must be at least 1 and {_HEAD + 8}"
            )
        self.folder = folder or default_folder()
        self.path = self.folder / (sha256(vocabulary.encode()).hexdigest()[:32] + _TOKENS)
        self.problem: str | None = None
        self._max_tokens = max_tokens
        self._max_bytes = max_bytes

    def load(self) -> list[list[int]]:
        """Return the kept texts, the oldest first. A damaged file is renamed to `.broken`."""
        try:
            return self._bounded(self._read())
        except OSError as error:
            self.problem = f"past texts cannot be read in {self.folder}: {error.strerror or error}"
            return []

    def add(self, *texts: Sequence[int]) -> None:
        """Keep texts, the oldest first, each in place of texts that it continues.

        Raises InvalidValueError for a token id out of range.
        """
        added = [list(text) for text in texts if text]
        if not added:
            return
        if wrong := [token for text in added for token in text if not 0 <= token <= _LARGEST]:
            raise InvalidValueError(f"token is {wrong[0]}; it must be from 0 to {_LARGEST}")
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locked_folder(self.folder):
                kept = self._read()
                for text in added:
                    kept = [*(past for past in kept if past != text[: len(past)]), text]
                self._write(self._bounded(kept))
        except OSError as error:
            self.problem = (
                f"past texts cannot be stored in {self.folder}: {error.strerror or error}"
            )

    def clear(self) -> None:
        """Delete the texts of this vocabulary. Raises OSError if that is impossible."""
        if not self.folder.exists():
            return
        with locked_folder(self.folder):
            for path in self.folder.glob(f"{self.path.stem}*"):
                path.unlink(missing_ok=True)

    def _bounded(self, texts: list[list[int]]) -> list[list[int]]:
        """The latest texts that fit; the oldest of them may lose its beginning."""
        # In the file, a text takes one entry more than it has tokens.
        entries = (self._max_bytes - _HEAD) // 4
        tokens = self._max_tokens
        kept: list[list[int]] = []
        for text in reversed(texts):
            room = min(tokens, entries - 1)
            if room < 1:
                break
            kept.append(text[-room:])
            tokens -= len(kept[-1])
            entries -= len(kept[-1]) + 1
        return kept[::-1]

    def _read(self) -> list[list[int]]:
        try:
            data = read_regular(self.path, _LARGEST)
            fault = _fault(data)
        except FileNotFoundError:
            return []
        except OSError:
            if self.path.is_file() or not self.path.exists():
                raise
            self.problem = f"{self.path.name} is no file; the next text makes a new one"
            return []
        if fault:
            self.path.replace(self.path.with_suffix(_BROKEN))
            self.problem = f"{self.path.name} {fault}; it was renamed, and a new file was made"
            return []
        entries = np.frombuffer(data, "<i4", offset=_HEAD)
        texts = np.split(entries, np.flatnonzero(entries == _CLOSE) + 1)
        return [text[:-1].tolist() for text in texts[:-1]]

    def _write(self, texts: list[list[int]]) -> None:
        entries = [entry for text in texts for entry in (*text, _CLOSE)]
        body = np.array(entries, "<i4").tobytes()
        with atomic_writer(self.path, _TEMPORARY) as file:
            file.write(_FIRST_LINE + zlib.crc32(body).to_bytes(4, "little") + body)


def _fault(data: bytes) -> str | None:
    """What is wrong with the file, or None."""
    if not data.startswith(_FIRST_LINE):
        return "holds no past texts"
    body = data[_HEAD:]
    checksum = data[len(_FIRST_LINE) : _HEAD]
    if len(body) % 4 or zlib.crc32(body).to_bytes(4, "little") != checksum:
        return "is damaged"
    entries = np.frombuffer(body, "<i4")
    if entries.size and (entries[-1] != _CLOSE or entries.min() < _CLOSE):
        return "holds something other than texts"
    return None
