"""StateStore: saved KV caches on disk, of a bounded total size, readable only by their owner.

There is one file per key. It holds a first line, the length and the CRC-32 of a header, the header
in JSON, and for each state its tokens (little-endian 32-bit integers), its data, and the CRC-32 of
both. A file is replaced only as a whole.
"""

import json
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from localspec.errors import InvalidValueError
from localspec.llama.state import State
from localspec.utils.bounded_file import open_regular
from localspec.utils.format import format_bytes
from localspec.utils.paths import (
    atomic_writer,
    cache_folder,
    delete_parts_of_the_dead,
    make_private_folder,
)

# The properties that a state depends on: if one differs, the state cannot be used. The values must
# be JSON; the keys appear in messages, such as "model file".
Origin: TypeAlias = Mapping[str, Any]

# In a key, stands before the name of a part of it.
PART = "\n"
_FIRST_LINE = b"localspec state 1\n"
_EVERY_VERSION = b"localspec state "
_STATE, _TEMPORARY = ".state", ".tmp"
# The header's length and CRC-32; a CRC-32.
_FRAME, _CHECKSUM = struct.Struct("<QI"), struct.Struct("<I")
# Bytes per read or write: small enough for the processor's cache, where the CRC is computed.
_CHUNK = 2**20


class StateStore:
    """Saved KV caches by key.

    folder: the folder of the files. max_bytes: the limit of their total size; the oldest files are
    deleted first. gives_up: asked again and again while a file is written; once it returns a
    reason, the file is left out.

    A file that cannot be read or written raises nothing: `problem` then holds the reason in one
    line, until the next call, and the text has to be evaluated again. Several processes may use a
    folder at the same time.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        max_bytes: int = 2 * 2**30,
        gives_up: Callable[[], str | None] = lambda: None,
    ) -> None:
        if max_bytes < 1:
            raise InvalidValueError(f"max_bytes is {max_bytes}; it must be at least 1")
        self.folder = folder or cache_folder("states")
        self.problem: str | None = None
        self._max_bytes = max_bytes
        self._gives_up = gives_up

    def save(self, key: str, origin: Origin, states: Mapping[str, State]) -> None:
        """Save states under a key, instead of those saved before. states: by any names.

        Raises TypeError for an origin that is not JSON.
        """
        self.problem = None
        header_bytes = _header_bytes(origin, states)
        size = len(header_bytes) + sum(_StateSize.of(state).size for state in states.values())
        if size > self._max_bytes:
            limit = format_bytes(self._max_bytes)
            self.problem = (
                f"the state takes {format_bytes(size)}, which is more than {limit}; "
                "it was not saved"
            )
            return
        text = key.partition(PART)[0]
        had_text = self.has(text)
        try:
            make_private_folder(self.folder)
            delete_parts_of_the_dead(self.folder.glob(f"*{_TEMPORARY}"))
            self._write(self._path(key), header_bytes, states.values())
            self._delete_oldest(self._path(key))
            if had_text and not self.has(text):
                limit = format_bytes(self._max_bytes)
                self.problem = (
                    f"the states of a text and its drafters take more than {limit}; "
                    "they were not saved"
                )
        except _GivenUpError as why:
            self.problem = f"the state of {format_bytes(size)} was not saved: {why}"
        except OSError as error:
            self.problem = f"the state cannot be saved: {error}"

    def load(self, key: str, origin: Origin) -> Mapping[str, State]:
        """The states saved under this key; empty if there are none or their origin differs.

        A damaged file is deleted.
        """
        self.problem = None
        path = self._path(key)
        try:
            with open_regular(path) as file:
                return self._read(file, origin)
        except FileNotFoundError:
            return {}
        except _DamagedError:
            self.problem = "the saved state is damaged; it was deleted"
            self._delete(path)
        except (OSError, MemoryError) as error:
            self.problem = f"the saved state cannot be read: {error}"
        return {}

    def texts(self, key: str, origin: Origin) -> Mapping[str, Sequence[int]]:
        """The tokens of each state under this key, without its data, which is not looked at.

        Empty where `load` would find nothing, or nothing of this origin.
        """
        found: dict[str, Sequence[int]] = {}
        with suppress(OSError, MemoryError, _DamagedError), open_regular(self._path(key)) as file:
            header = _read_header(file, file.read(len(_FIRST_LINE)))
            if _differing_keys(header["origin"], origin):
                return {}
            left = os.fstat(file.fileno()).st_size - file.tell()
            for name, size in (
                (name, _StateSize(*each)) for name, each in header["states"].items()
            ):
                if (left := left - size.size) < 0:
                    break
                found[name] = np.frombuffer(file.read(4 * size.tokens), "<i4").tolist()
                file.seek(size.data + _CHECKSUM.size, os.SEEK_CUR)
        return found

    def has(self, key: str) -> bool:
        """Whether something was saved under this key."""
        return self._path(key).exists()

    def used(self, key: str) -> float:
        """When this key was saved or used last, in seconds since 1970; 0: never."""
        try:
            return self._path(key).stat().st_mtime
        except OSError:
            return 0.0

    def note_use(self, key: str) -> None:
        """Note that the states of this key and its parts are used now, so that they stay longer."""
        for path in self._of(key):
            if path.suffix == _STATE:
                with suppress(OSError):
                    os.utime(path)

    @property
    def total_bytes(self) -> int:
        """The bytes of all files."""
        total = 0
        for path in self._files():
            # Another process may have deleted it.
            with suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    def remove(self, key: str) -> None:
        """Delete the states of this key and of its parts."""
        self._delete(*self._of(key))

    def clear(self) -> None:
        """Delete the states of all keys."""
        self._delete(*self._files())

    def _path(self, key: str) -> Path:
        parts = (sha256(part.encode()).hexdigest()[:32] for part in key.split(PART))
        return self.folder / ("-".join(parts) + _STATE)

    def _of(self, key: str) -> Iterator[Path]:
        """The files of a key and its parts, unfinished ones included."""
        yield from self.folder.glob(f"{self._path(key).stem}*")

    def _files(self) -> Iterator[Path]:
        for suffix in (_STATE, _TEMPORARY):
            yield from self.folder.glob(f"*{suffix}")

    def _delete(self, *paths: Path) -> None:
        for path in paths:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                self.problem = f"the saved state cannot be deleted: {error}"

    def _delete_oldest(self, latest: Path) -> None:
        """Delete the oldest files until the rest fits `max_bytes`."""
        found: list[tuple[int, bool, int, Path]] = []
        for path in self._files():
            # Another process may have deleted it.
            with suppress(FileNotFoundError):
                status = path.stat()
                found.append((status.st_mtime_ns, path == latest, status.st_size, path))
        total = 0
        for _, _, size, path in sorted(found, reverse=True):
            total += size
            if total > self._max_bytes:
                self._delete(path)

    def _write(self, path: Path, header_bytes: bytes, states: Iterable[State]) -> None:
        with atomic_writer(path, f".{os.getpid()}{_TEMPORARY}") as file:
            file.write(header_bytes)
            for state in states:
                self._write_state(file, state)

    def _write_state(self, file: BufferedWriter, state: State) -> None:
        checksum = 0
        for view in (_bytes_of(np.array(state.tokens, "<i4")), _bytes_of(state.data)):
            for start in range(0, len(view), _CHUNK):
                if why := self._gives_up():
                    raise _GivenUpError(why)
                chunk = view[start : start + _CHUNK]
                checksum = zlib.crc32(chunk, checksum)
                file.write(chunk)
        file.write(_CHECKSUM.pack(checksum))

    def _read(self, file: BufferedReader, origin: Origin) -> Mapping[str, State]:
        first = file.read(len(_FIRST_LINE))
        if first != _FIRST_LINE and first.startswith(_EVERY_VERSION):
            self.problem = "the saved state is of another version of localspec"
            return {}
        header = _read_header(file, first)
        if other := _differing_keys(header["origin"], origin):
            self.problem = f"the saved state is of another {' and another '.join(other)}"
            return {}
        parts = {name: _StateSize(*sizes) for name, sizes in header["states"].items()}
        # Checked before memory of these sizes is allocated.
        left = os.fstat(file.fileno()).st_size - file.tell()
        if left != sum(part.size for part in parts.values()):
            raise _DamagedError
        return {name: _read_state(file, part) for name, part in parts.items()}


class _DamagedError(Exception):
    """The file differs from what was written."""


class _GivenUpError(Exception):
    """The file is not written to its end."""


class _StateSize(NamedTuple):
    """The size of one state in a file: tokens, and bytes of data."""

    tokens: int
    data: int

    @classmethod
    def of(cls, state: State) -> "_StateSize":
        return cls(len(state.tokens), state.data.size)

    @property
    def size(self) -> int:
        return 4 * self.tokens + self.data + _CHECKSUM.size


def _header_bytes(origin: Origin, states: Mapping[str, State]) -> bytes:
    """The first line and the header of a file with these states."""
    sizes = {name: _StateSize.of(state) for name, state in states.items()}
    header = json.dumps({"origin": dict(origin), "states": sizes}).encode()
    return _FIRST_LINE + _FRAME.pack(len(header), zlib.crc32(header)) + header


def _read_header(file: BufferedReader, first: bytes) -> Any:
    frame = file.read(_FRAME.size)
    if first != _FIRST_LINE or len(frame) != _FRAME.size:
        raise _DamagedError
    length, checksum = _FRAME.unpack(frame)
    header = file.read(min(length, os.fstat(file.fileno()).st_size))
    if len(header) != length or zlib.crc32(header) != checksum:
        raise _DamagedError
    try:
        match json.loads(header):
            case {"origin": {}, "states": {**states}} as whole:
                if all(_is_size(pair) for pair in states.values()):
                    return whole
    except (ValueError, TypeError, RecursionError) as error:
        raise _DamagedError from error
    raise _DamagedError


def _is_size(sizes: Any) -> bool:
    match sizes:
        case [int(tokens), int(data)]:
            return tokens >= 0 and data >= 0
    return False


def _differing_keys(saved: Origin, current: Origin) -> list[str]:
    """The keys whose values differ between two origins; `saved` was read from JSON."""
    current = json.loads(json.dumps(dict(current)))
    missing = object()
    keys = dict.fromkeys([*saved, *current])
    return [key for key in keys if saved.get(key, missing) != current.get(key, missing)]


def _read_state(file: BufferedReader, part: _StateSize) -> State:
    tokens, data = np.empty(part.tokens, "<i4"), np.empty(part.data, np.uint8)
    checksum = 0
    for view in (_bytes_of(tokens), _bytes_of(data)):
        for start in range(0, len(view), _CHUNK):
            chunk = view[start : start + _CHUNK]
            if file.readinto(chunk) != len(chunk):
                raise _DamagedError
            checksum = zlib.crc32(chunk, checksum)
    if file.read(_CHECKSUM.size) != _CHECKSUM.pack(checksum):
        raise _DamagedError
    return State(tuple(tokens.tolist()), data)


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return array.view(np.uint8).data
