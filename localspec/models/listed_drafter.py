"""Listed drafters: what an entry of models.toml says of the drafters of its target."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from localspec.errors import InvalidValueError
from localspec.hub.reference import Reference
from localspec.models.bundled_files import name_of
from localspec.models.kinds import DRAFT_MODEL, HEADS, KINDS

IN_TARGET = "in the target"
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedDrafter:
    """A drafter of a pair.

    kind: one of KINDS. file: None for heads inside the target. size: bytes, 0 where unknown.
    sha256: of the file, empty where unknown. report: what somebody measured. loses: why `auto` does
    not take this drafter. source: who says all that. unverified: the fields that no source says was
    checked.
    """

    kind: str = DRAFT_MODEL
    file: Reference | None = None
    size: int = 0
    sha256: str = ""
    report: str = ""
    loses: str = ""
    source: str = ""
    unverified: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {name_of(self.file) if self.file else IN_TARGET}"


_KEYS = [each.name for each in fields(ListedDrafter)]
_WANTED = {
    "kind": f"one of {', '.join(KINDS)}",
    "size": "a whole number of bytes",
    "sha256": "64 lower-case hexadecimal digits",
    "unverified": f"a list of {', '.join(_KEYS)}",
}


def parse_drafters(
    entries: Any, where: str, reference: Callable[[Any, str], Reference]
) -> tuple[ListedDrafter, ...]:
    """Parse the list of a pair's drafters. where: the pair, for messages. reference: parses a file.

    Raises InvalidValueError.
    """
    if not isinstance(entries, list) or not entries:
        raise InvalidValueError(
            f"{where}: drafters is {entries!r}; it is a list of tables with a kind and a file"
        )
    return tuple(
        _drafter(entry, f"{where}: drafter {number}", reference)
        for number, entry in enumerate(entries, start=1)
    )


def _drafter(entry: Any, where: str, reference: Callable[[Any, str], Reference]) -> ListedDrafter:
    if not isinstance(entry, Mapping):
        raise InvalidValueError(f"{where} is {entry!r}; it is a table with a kind and a file")
    if unknown := entry.keys() - set(_KEYS):
        raise InvalidValueError(
            f"{where} has an unknown key {min(unknown)!r}; the keys are {', '.join(_KEYS)}"
        )
    if missing := {"kind", "file"} - entry.keys():
        raise InvalidValueError(f"{where} has no {min(missing)}; add it")
    for key, value in entry.items():
        if key != "file" and not _fits(key, value):
            raise InvalidValueError(
                f"{where}: {key} is {value!r}; it is {_WANTED.get(key, 'a text')}"
            )
    values = {**entry, "unverified": tuple(entry.get("unverified", ()))}
    if entry["file"] != IN_TARGET:
        values["file"] = reference(entry["file"], f"{where}: file")
    elif entry["kind"] in HEADS:
        values["file"] = None
    else:
        raise InvalidValueError(f"{where}: a {entry['kind']} is never {IN_TARGET}; name its file")
    return ListedDrafter(**values)


def _fits(key: str, value: Any) -> bool:
    """Whether a value is valid for its key; for every key but file."""
    match key:
        case "kind":
            return value in KINDS
        case "size":
            return type(value) is int and value > 0
        case "sha256":
            return isinstance(value, str) and _SHA256.fullmatch(value) is not None
        case "unverified":
            return isinstance(value, list) and all(each in _KEYS for each in value)
        case _:
            return isinstance(value, str)
