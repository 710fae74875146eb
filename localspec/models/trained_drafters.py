"""Trained drafters: those that `localspec train` made for a target, wherever their files lie.

Heads that `localspec convert` made for a target of the Hub's cache are listed beside them, and
those that `localspec trim` cut.

A list of them is kept by the content of the target's file, so that it may be moved or renamed.
"""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localspec.errors import LocalspecError
from localspec.gguf.fingerprint import fingerprint
from localspec.gguf.reader import Header
from localspec.models.kinds import KINDS
from localspec.utils.paths import data_folder
from localspec.utils.stored_json import store_json, stored

# Metadata of a trained drafter: the fingerprint of its target's file.
TARGET = "localspec.trained.target"
_FOLDER, _LISTS = "drafters", "lists"


@dataclass(frozen=True, slots=True)
class TrainedDrafter:
    """kind: one of KINDS. file: its GGUF. target: the name of its target's file.

    preferred: whether it is faster than the other drafters of its target, as measured. pays:
    whether it is faster than plain decoding.
    """

    kind: str
    file: Path
    target: str
    preferred: bool
    pays: bool = True


def is_trained_for(target: Path, drafter: Header) -> bool:
    """Whether a drafter was trained here for this very target."""
    found = drafter.metadata.get(TARGET)
    return found is not None and found == fingerprint(target)


def default_folder() -> Path:
    """Where drafters are written that the user gives no other place."""
    return data_folder(_FOLDER)


def trained_drafters(target: Path) -> list[TrainedDrafter]:
    """Return the drafters trained for a target that are still there, the last one first."""
    found = stored(list_file, _parse) if (list_file := _list_of(target)) else None
    return [each for each in found or [] if os.path.isfile(each.file)]


def all_trained() -> list[TrainedDrafter]:
    """Return the trained drafters of all targets that are still there, by their files."""
    lists = sorted((default_folder() / _LISTS).glob("*.json"))
    found = [each for file in lists for each in stored(file, _parse) or []]
    return sorted((each for each in found if os.path.isfile(each.file)), key=lambda each: each.file)


def trained_named(name: str) -> list[TrainedDrafter]:
    """Return the trained drafters of this path, or of this file name."""
    path = Path(name)
    return [
        each
        for each in all_trained()
        if name in (each.file.name, each.file.stem) or path.absolute() == each.file
    ]


def add_trained(target: Path, drafter: TrainedDrafter) -> None:
    """Make a drafter one of its target's own. Raises LocalspecError if that cannot be written."""
    others = [each for each in trained_drafters(target) if each.file != drafter.file]
    _store(_list_file(target), [drafter, *others])


def remove_trained(file: Path) -> bool:
    """Delete a trained drafter and forget it; False if there is none in this file.

    Raises LocalspecError where the file cannot be deleted.
    """
    wanted, removed = file.absolute(), False
    for each in sorted((default_folder() / _LISTS).glob("*.json")):
        listed = stored(each, _parse) or []
        kept = [drafter for drafter in listed if drafter.file != wanted]
        if len(kept) == len(listed):
            continue
        try:
            wanted.unlink(missing_ok=True)
        except OSError as error:
            raise LocalspecError(f"{wanted} cannot be deleted: {error.strerror}") from error
        _store(each, kept)
        removed = True
    return removed


def _store(file: Path, drafters: Sequence[TrainedDrafter]) -> None:
    record = [{**asdict(each), "file": str(each.file)} for each in drafters]
    try:
        store_json(file, record)
    except OSError as error:
        raise LocalspecError(f"{file} cannot be written: {error.strerror or error}") from error


def _list_of(target: Path) -> Path | None:
    """The list of a target; None without one. Files are read only where one of the size exists."""
    folder = default_folder() / _LISTS
    try:
        size = target.stat().st_size
        if not any(folder.glob(f"{size}-*.json")):
            return None
        return _list_file(target)
    except OSError:
        return None


def _list_file(target: Path) -> Path:
    name = f"{target.stat().st_size}-{fingerprint(target)[:32]}.json"
    return default_folder() / _LISTS / name


def _parse(value: Any) -> list[TrainedDrafter]:
    found = [
        TrainedDrafter(
            str(each["kind"]),
            Path(each["file"]),
            str(each["target"]),
            bool(each["preferred"]),
            bool(each["pays"]),
        )
        for each in value
    ]
    if any(each.kind not in KINDS for each in found):
        raise ValueError("an unknown kind")
    return found
