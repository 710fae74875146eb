"""Models of which one number is another: all numbers in turn, near the true one and far off."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from fakes import families
from fakes.gguf_document import Document, Entry, parse
from fakes.loader import Loader
from fakes.tiny import FAMILIES, write_tiny

from localspec.errors import ModelLoadError
from localspec.gguf.check import check_generative
from localspec.gguf.types import ARRAY, BOOL, FLOAT32, FLOAT64, SCALARS

_SMALL, _LARGE = (0, 1, 2, 3, 5), (64, 100, 256, 512, 1000, 4096, 1 << 16)
_FRACTIONS = (0.0, -1.0, 2.5, 1e30, 1e-30, float("nan"), float("inf"))


class Change(NamedTuple):
    """What is other in a model: the entry at a place, and its value."""

    model: str
    entry: int
    value: Any


def _others(entry: Entry) -> list[Any]:
    if entry.kind == ARRAY:
        kind, items = entry.value
        if kind not in SCALARS or kind in (FLOAT32, FLOAT64):
            return []
        lists = [[], items[:1], items * 2, items[::-1], [0] * len(items), [1] * len(items)]
        lists += [[int(each) * 2 for each in items], [int(each) + 1 for each in items]]
        return [(kind, each) for each in lists if kind != BOOL or {*each} <= {0, 1}]
    if entry.kind == BOOL:
        return [not entry.value]
    if entry.kind in (FLOAT32, FLOAT64):
        return [*_FRACTIONS]
    if entry.kind not in SCALARS:
        return []
    old = int(entry.value)
    near = {old + 1, abs(old - 1), old * 2, old * 3, old * 4, old * 8, old // 2, old // 4}
    return sorted({*near, old + 8, old + 32, *_SMALL, *_LARGE} - {old})


@contextmanager
def numbers() -> Iterator[Callable[[int], str]]:
    """The cases; their numbers count through the changes, and then begin again."""
    with TemporaryDirectory(prefix="localspec-fuzz-") as name:
        folder = Path(name)
        models = {each: parse(write_tiny(folder / f"{each}.gguf", each)) for each in FAMILIES}
        models |= {each: parse(families.target(each)) for each in ("gemma4", "gpt-oss", "phi3")}
        changes = [
            Change(each, place, value)
            for each, document in models.items()
            for place, entry in enumerate(document.entries)
            if entry.key.startswith(document.architecture.encode() + b".")
            for value in _others(entry)
        ]
        loader, path = Loader(), folder / "changed.gguf"

        def case(number: int) -> str:
            change = changes[number % len(changes)]
            document = _changed(models[change.model], change)
            path.write_bytes(document.assembled())
            try:
                check_generative(path)
            except ModelLoadError:
                return "refused"
            try:
                answers = loader.load(path)
            except AssertionError as error:
                raise AssertionError(f"{_said(document, change)}: {error}") from error
            assert not any("alloc" in each for each in answers), _said(document, change)
            return "decoded" if answers == ["decoded"] * 2 else "not loaded"

        try:
            yield case
        finally:
            loader.close()


def _changed(document: Document, change: Change) -> Document:
    document = copy.deepcopy(document)
    document.entries[change.entry].value = change.value
    return document


def _said(document: Document, change: Change) -> str:
    entry = document.entries[change.entry]
    return f"{change.model} with {entry.key.decode()} = {entry.value!r:.60}"
