"""A cursor that reads the bytes of a GGUF file in order and never leaves the file."""

import mmap
import struct
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from localspec.errors import ModelLoadError
from localspec.gguf.types import ARRAY, BOOL, SCALARS, STRING, UINT8, UINT32, UINT64

# Far above every real model, and low enough that a hostile file is refused at once.
MAX_HEADER_BYTES = 1 << 26
MAX_ENTRIES = 1 << 16

_U32, _U64 = SCALARS[UINT32], SCALARS[UINT64]


class Array(Sequence[Any]):
    """An array of the metadata, decoded on the first use, because a vocabulary is long.

    kind: the type of its items, one of those in types. count: how many there are. raw: their bytes
    in the file. Bytes of a string that are not UTF-8 become surrogates: a token may be any bytes.
    """

    def __init__(self, kind: int, count: int, raw: bytes) -> None:
        self.kind = kind
        self._count = count
        self._raw = raw

    @cached_property
    def _items(self) -> tuple[Any, ...]:
        if self.kind == STRING:
            return tuple(self._strings())
        return struct.unpack(f"<{self._count}{SCALARS[self.kind].format[1:]}", self._raw)

    def _strings(self) -> Iterator[str]:
        start = 0
        for _ in range(self._count):
            end = start + 8 + _U64.unpack_from(self._raw, start)[0]
            yield self._raw[start + 8 : end].decode("utf-8", "surrogateescape")
            start = end

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int | slice) -> Any:
        return self._items[index]


class Cursor:
    """Reads values one after the other, from the first byte on.

    view: the whole file. name, again: for messages, the file's name and how to get it anew. Every
    method that reads raises ModelLoadError for a damaged file; `what` names the value there.
    """

    def __init__(self, view: mmap.mmap, name: str, again: str) -> None:
        self.view = view
        self.name, self.again = name, again
        self.position = 0

    def refuse(self, problem: str, way_out: str = "") -> ModelLoadError:
        """Return the error to raise for a damaged file."""
        return ModelLoadError(f"{self.name} is damaged: {problem}; {way_out or self.again}")

    def take(self, size: int, what: str) -> int:
        """Skip `size` bytes and return the position of the first of them."""
        start = self.position
        if size > len(self.view) - start:
            raise ModelLoadError(
                f"{self.name} is truncated or damaged: {what} needs {size} bytes at byte {start} "
                f"and the file has {len(self.view)}; {self.again}"
            )
        if start + size > MAX_HEADER_BYTES:
            raise self.refuse(f"{what} makes its header larger than {MAX_HEADER_BYTES} bytes")
        self.position = start + size
        return start

    def scalar(self, form: struct.Struct, what: str) -> Any:
        """Read one number. form: one of SCALARS."""
        return form.unpack_from(self.view, self.take(form.size, what))[0]

    def count(self, what: str, *, least_bytes: int) -> int:
        """Read how many of `what` follow, each of which takes at least `least_bytes`."""
        count: int = self.scalar(_U64, f"the number of {what}")
        room = (len(self.view) - self.position) // least_bytes
        if count > min(room, MAX_ENTRIES):
            raise self.refuse(f"it claims {count} {what} in {len(self.view)} bytes")
        return count

    def string(self, what: str) -> bytes:
        """Read a length and so many bytes."""
        size = self.scalar(_U64, what)
        start = self.take(size, what)
        return self.view[start : start + size]

    def label(self, what: str, most_bytes: int) -> str:
        """Read the name of a key or tensor: printable UTF-8 of at most `most_bytes`."""
        raw = self.string(what)
        if not 0 < len(raw) <= most_bytes:
            raise self.refuse(f"{what} has {len(raw)} bytes, not 1 to {most_bytes}")
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.refuse(f"{what} is not UTF-8: {raw[:32]!r}") from error
        if not text.isprintable():
            raise self.refuse(f"{what} holds unprintable characters: {text[:32]!r}")
        return text

    def value(self, kind: int, what: str) -> object:
        """Read a value of the metadata. kind: its type, one of those in types."""
        if kind == ARRAY:
            return self.array(what)
        if kind == STRING:
            return self.string(what).decode("utf-8", "replace")
        if kind == BOOL:
            return bool(self.scalar(SCALARS[UINT8], what))
        if kind not in SCALARS:
            raise self.refuse(f"{what} has the unknown type {kind}")
        return self.scalar(SCALARS[kind], what)

    def array(self, what: str) -> Array:
        """Read the type of an array's items, their number, and their bytes."""
        kind: int = self.scalar(_U32, what)
        count: int = self.scalar(_U64, what)
        if kind != STRING and kind not in SCALARS:
            # The format has nested arrays, but llama.cpp does not read them.
            raise self.refuse(f"{what} is an array of the unknown type {kind}")
        size = count * (8 if kind == STRING else SCALARS[kind].size)
        start = self.take(size, what)
        if kind == STRING:
            self.position = start
            size = self.skip_strings(count, what)
        return Array(kind, count, self.view[start : start + size])

    def skip_strings(self, count: int, what: str) -> int:
        """Skip `count` strings and return the bytes that they take."""
        read, view, last = _U64.unpack_from, self.view, len(self.view) - 8
        position = self.position
        for _ in range(count):
            if position > last:
                position += 8  # the length itself is outside of the file, which `take` refuses
                break
            position += 8 + read(view, position)[0]
        size = position - self.position
        self.take(size, what)
        return size
