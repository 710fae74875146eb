"""Past texts on disk for the suffix drafter: opt-in, bounded, deletable, private to their owner.

There is one file per vocabulary: a first line, a checksum, the number of entries, the tokens of all
texts with -1 after each text (32-bit integers, little-endian), and what they were drawn from, by
entries (see `DrawnFrom.columns`). A file is always replaced as a whole. Version 1 has no number of
entries, and ends behind the tokens.
"""

import zlib
from array import array
from functools import reduce
from hashlib import sha256
from pathlib import Path

import numpy as np

from localspec.drafters.drawn_from import DrawnFrom, DrawnText
from localspec.errors import InvalidValueError
from localspec.utils.bounded_file import read_regular
from localspec.utils.folder_lock import locked_folder
from localspec.utils.paths import atomic_writer, cache_folder

_FIRST_LINE, _VERSION_1 = b"localspec past texts 2\n", b"localspec past texts 1\n"
_HEAD = len(_FIRST_LINE) + 4  # and the CRC-32 of the rest
# Beside the entries, each of which takes 4 bytes and a byte of what is known of it.
_LEAST_SIZE = _HEAD + 4 + sum(map(len, DrawnFrom().columns()))
_PER_ENTRY = 5
_CLOSE, _LARGEST = -1, 2**31 - 1
# An index of them takes 140 bytes per token.
MOST_TOKENS = 200_000
# The whole file is written every ten seconds while texts end. Of MOST_TOKENS tokens it has what
# those were drawn from, unless the target is unsure of most tokens: then of the latest ones.
_MOST_BYTES = 5_000_000
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
    max_tokens, max_bytes: the most that is kept; what the oldest texts were drawn from is dropped
    first, then the oldest texts.

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
        max_bytes: int = _MOST_BYTES,
    ) -> None:
        if max_tokens < 1 or max_bytes < _LEAST_SIZE + 2 * _PER_ENTRY:
            raise InvalidValueError(
                f"max_tokens is {max_tokens} and max_bytes {max_bytes}; "
                f"they must be at least 1 and {_LEAST_SIZE + 2 * _PER_ENTRY}"
            )
        self.folder = folder or default_folder()
        self.path = self.folder / (sha256(vocabulary.encode()).hexdigest()[:32] + _TOKENS)
        self.problem: str | None = None
        self._max_tokens = max_tokens
        self._max_bytes = max_bytes

    def load(self) -> list[DrawnText]:
        """Return the kept texts, the oldest first. A damaged file is renamed to `.broken`."""
        try:
            return self._bounded(self._read())
        except OSError as error:
            self.problem = f"past texts cannot be read in {self.folder}: {error.strerror or error}"
            return []

    def add(self, *texts: DrawnText) -> None:
        """Keep texts, the oldest first, each in place of texts that it continues.

        Raises InvalidValueError for a token id out of range.
        """
        added = [DrawnText([*tokens], known) for tokens, known in texts if tokens]
        if not added:
            return
        for text in added:
            for token in (min(text.tokens), max(text.tokens)):
                if not 0 <= token <= _LARGEST:
                    raise InvalidValueError(f"token is {token}; it must be from 0 to {_LARGEST}")
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locked_folder(self.folder):
                kept = self._read()
                for text in added:
                    kept = _with(kept, text)
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

    def _bounded(self, texts: list[DrawnText]) -> list[DrawnText]:
        """The latest texts that fit; the oldest of them may lose its beginning."""
        # In the file, a text takes one entry more than it has tokens.
        entries = (self._max_bytes - _LEAST_SIZE) // _PER_ENTRY
        tokens = self._max_tokens
        kept: list[DrawnText] = []
        for text, drawn_from in reversed(texts):
            room = min(tokens, entries - 1, len(text))
            if room < 1:
                break
            if first := len(text) - room:
                text, drawn_from = text[first:], drawn_from.part(first, len(text))
            kept.append(DrawnText(text, drawn_from))
            tokens -= room
            entries -= room + 1
        return self._without_oldest_choices(kept)[::-1]

    def _without_oldest_choices(self, latest_first: list[DrawnText]) -> list[DrawnText]:
        entries = sum(len(text.tokens) + 1 for text in latest_first)
        room = self._max_bytes - _LEAST_SIZE - _PER_ENTRY * entries
        kept = list[DrawnText]()
        for text, drawn_from in latest_first:
            known = drawn_from.latest(room)
            room -= known.size
            kept.append(DrawnText(text, known))
        return kept

    def _read(self) -> list[DrawnText]:
        try:
            data = read_regular(self.path, _LARGEST)
        except FileNotFoundError:
            return []
        except OSError:
            if self.path.is_file() or not self.path.exists():
                raise
            self.problem = f"{self.path.name} is no file; the next text makes a new one"
            return []
        try:
            return _texts(data)
        except InvalidValueError as fault:
            self.path.replace(self.path.with_suffix(_BROKEN))
            self.problem = f"{self.path.name} {fault}; it was renamed, and a new file was made"
            return []

    def _write(self, texts: list[DrawnText]) -> None:
        entries, known = array("i"), DrawnFrom()
        for text, drawn_from in texts:
            known.extend(len(entries), drawn_from)
            entries.extend(text)
            entries.append(_CLOSE)
        head = np.array([len(entries)], "<u4").tobytes()
        body = [head, np.array(entries, "<i4").tobytes(), *known.columns()]
        checksum = reduce(lambda so_far, part: zlib.crc32(part, so_far), body, 0)
        with atomic_writer(self.path, _TEMPORARY) as file:
            file.writelines([_FIRST_LINE, checksum.to_bytes(4, "little"), *body])


def _with(kept: list[DrawnText], added: DrawnText) -> list[DrawnText]:
    """Texts with another one in place of those that it continues; what was known of them stays.

    Their tokens are lists: many are compared.
    """
    others, (tokens, known) = list[DrawnText](), added
    for text in kept:
        if text.tokens == tokens[: len(text.tokens)]:
            known = known.completed(text.drawn_from)
        else:
            others.append(text)
    return [*others, DrawnText(tokens, known)]


def _texts(data: bytes) -> list[DrawnText]:
    """The texts of a file. Raises InvalidValueError, which says what is wrong with it."""
    is_old = data.startswith(_VERSION_1)
    if not is_old and not data.startswith(_FIRST_LINE):
        raise InvalidValueError("holds no past texts")
    body = memoryview(data)[_HEAD:]
    if zlib.crc32(body).to_bytes(4, "little") != data[_HEAD - 4 : _HEAD]:
        raise InvalidValueError("is damaged")
    start = 0 if is_old else 4
    end = len(body) if is_old else 4 + 4 * int.from_bytes(body[:4], "little")
    if end > len(body) or (end - start) % 4:
        raise InvalidValueError("is damaged")
    entries = np.frombuffer(body[start:end], "<i4")
    if entries.size and (entries[-1] != _CLOSE or entries.min() < _CLOSE):
        raise InvalidValueError("holds something other than texts")
    known = DrawnFrom() if is_old else DrawnFrom.of_columns(body[end:])
    ends = np.flatnonzero(entries == _CLOSE).tolist()
    return [
        DrawnText(entries[first:after].tolist(), known.part(first, after))
        for first, after in zip([0, *(each + 1 for each in ends)], ends, strict=False)
    ]
