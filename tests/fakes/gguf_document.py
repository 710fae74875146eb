"""A GGUF taken apart, so that a test can change anything and put it together again."""

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf

from localspec.gguf.types import ARRAY, SCALARS, STRING


@dataclass
class Entry:
    """A line of metadata.

    value: a number, bytes, or of an array the kind and the list. label: the kind it claims to have.
    """

    key: bytes
    kind: int
    value: Any
    label: int | None = None

    def assembled(self) -> bytes:
        label = struct.pack("<I", self.kind if self.label is None else self.label)
        return _text(self.key) + label + _encoded(self.kind, self.value)


@dataclass
class Tensor:
    """A tensor. shift: how far from its place the table says it is."""

    name: bytes
    shape: list[int]
    kind: int
    data: bytes
    shift: int = 0

    def assembled(self, offset: int) -> bytes:
        shape = b"".join(map(u64, self.shape))
        place = struct.pack("<I", self.kind) + u64(offset + self.shift)
        return _text(self.name) + struct.pack("<I", len(self.shape)) + shape + place


@dataclass
class Document:
    """A GGUF in its parts. counts: what is added to the numbers of tensors and of entries."""

    entries: list[Entry]
    tensors: list[Tensor]
    counts: list[int] = field(default_factory=lambda: [0, 0])

    def named(self, key: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.key == key.encode()), None)

    @property
    def architecture(self) -> str:
        entry = self.named("general.architecture")
        text = entry.value if entry and isinstance(entry.value, bytes) else b""
        return text.decode("utf-8", "replace")

    def assembled(self) -> bytes:
        """The file: every tensor on the next multiple of 32 bytes."""
        table, data = b"", b""
        for tensor in self.tensors:
            table += tensor.assembled(len(data))
            data += tensor.data + bytes(-len(tensor.data) % 32)
        head = b"GGUF\3\0\0\0" + u64(len(self.tensors) + self.counts[0])
        head += u64(len(self.entries) + self.counts[1])
        head += b"".join(entry.assembled() for entry in self.entries) + table
        return head + bytes(-len(head) % 32) + data


def parse(path: Path) -> Document:
    """The parts of a sound file."""
    reader = gguf.GGUFReader(path)
    fields = {key: each for key, each in reader.fields.items() if not key.startswith("GGUF.")}
    return Document(
        [Entry(key.encode(), int(each.types[0]), _value(each)) for key, each in fields.items()],
        [
            Tensor(each.name.encode(), each.shape.tolist(), each.tensor_type, each.data.tobytes())
            for each in reader.tensors
        ],
    )


def _value(each: Any) -> Any:
    value = each.contents()
    if isinstance(value, list):
        return int(each.types[1]), [v.encode() if isinstance(v, str) else v for v in value]
    return value.encode() if isinstance(value, str) else value


def u64(number: int) -> bytes:
    return struct.pack("<Q", number & (1 << 64) - 1)


def _text(raw: bytes) -> bytes:
    return u64(len(raw)) + raw


def _encoded(kind: int, value: Any) -> bytes:
    if kind == STRING:
        return _text(value)
    if kind == ARRAY:
        of, items = value
        return struct.pack("<I", of) + u64(len(items)) + b"".join(_encoded(of, v) for v in items)
    form = SCALARS[kind]
    if form.format[-1] in "fd":
        return form.pack(value)
    return int(value).to_bytes(form.size, "little", signed=value < 0)
