"""Registry: the pairs of localspec's models.toml and of the user's own models.toml."""

import difflib
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple

from localspec.errors import InvalidValueError
from localspec.hub.reference import Reference, repository
from localspec.utils.paths import config_folder

# The version of the format; a file may name it. Raise it when old files would be misread.
_VERSION = 1
_BUNDLED = "bundled:"
# A name has no colon and no slash, which tell a repository.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A target and its drafter.

    drafter: None where no model drafts; `no_drafter` says why. prompt: how a prompt is read by
    default: as a turn of a chat, or raw, as a text to continue. parameters: of both models, as
    text. context: tokens that the target was trained for, 0 where unknown. sizes: gigabytes (1e9
    bytes) of the target's file by quantisation. unverified: the fields that could not be checked.
    """

    name: str
    target: Reference
    drafter: Reference | None = None
    no_drafter: str | None = None
    prompt: Literal["chat", "raw"] = "chat"
    parameters: str = ""
    context: int = 0
    sizes: Mapping[str, float] = field(default_factory=dict)
    licence: str = ""
    note: str = ""
    unverified: tuple[str, ...] = ()


_KEYS = [each.name for each in fields(Pair) if each.name != "name"]
_WANTED = {
    "prompt": "chat or raw",
    "context": "a whole number of tokens",
    "sizes": "a table of gigabytes by quantisation",
    "unverified": f"a list of {', '.join(_KEYS)}",
}


_EXAMPLE = '"user/repo", or an absolute path'


class Bundled(NamedTuple):
    """The files of the pair that comes with localspec."""

    target: Path
    drafter: Path


def bundled() -> Bundled:
    """Return the pair that is used where the user names no model."""
    folder = Path(str(resources.files("localspec.bundled")))
    return Bundled(folder / "pycode-7m-q8_0.gguf", folder / "pycode-4m-q4_0.gguf")


def pairs() -> Mapping[str, Pair]:
    """Return every pair by its name: the user's own, then those of localspec not replaced by them.

    Raises InvalidValueError for a user's models.toml that cannot be used.
    """
    own = _users(user_file())
    return {**own, **_curated(), **own}


def pair_named(name: str) -> Pair | None:
    """Find a pair by `name` or `name:quant`, in any case; None for every other text.

    Raises InvalidValueError for a user's models.toml that cannot be used.
    """
    label, known = name.partition(":")[0], pairs()
    others = (pair for pair in known.values() if pair.name.lower() == label.lower())
    return known.get(label) or next(others, None)


def user_file() -> Path:
    """Return the path of the user's own models.toml, which may not exist."""
    return config_folder() / "models.toml"


@cache
def _curated() -> Mapping[str, Pair]:
    packaged = resources.files("localspec") / "models.toml"
    # In a checkout the file is beside the package.
    file = packaged if packaged.is_file() else Path(__file__).parents[2] / "models.toml"
    return _parse(file.read_text(encoding="utf-8"), "models.toml")


def _users(file: Path) -> Mapping[str, Pair]:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidValueError(f"{file} cannot be read: {reason}; mend or move it") from error
    return _parse(text, str(file))


def _parse(text: str, file: str) -> Mapping[str, Pair]:
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"{file} is no TOML: {error}; mend or move it") from error
    _require_version(tables.pop("version", _VERSION), file)
    entries = tables.pop("pairs", {})
    if tables or not isinstance(entries, dict):
        stray = min(tables, default="pairs")
        raise InvalidValueError(f"{file}: {stray!r} is no pair; a pair begins with [pairs.NAME]")
    return {name: _pair(name, entry, file) for name, entry in entries.items()}


def _require_version(version: Any, file: str) -> None:
    if type(version) is int and version > _VERSION:
        raise InvalidValueError(
            f"{file}: version is {version}, and this localspec reads version {_VERSION}; "
            "update localspec, or move the file"
        )
    if type(version) is not int or version < _VERSION:
        raise InvalidValueError(
            f"{file}: version is {version!r}, and this localspec reads version {_VERSION}; "
            f"write the pairs as [pairs.NAME] with a target, and version = {_VERSION}"
        )


def _pair(name: str, entry: Any, file: str) -> Pair:
    if not _NAME.fullmatch(name):
        raise InvalidValueError(
            f"{file}: {name!r} is no name of a pair; use letters, digits, dots and hyphens"
        )
    where = f"{file}: [pairs.{name}]"
    if not isinstance(entry, dict):
        raise InvalidValueError(f"{where} is {entry!r}; write target = {_EXAMPLE} below that line")
    if unknown := entry.keys() - set(_KEYS):
        raise InvalidValueError(f"{where} has an unknown key {_with_hint(min(unknown), entry)}")
    if "target" not in entry:
        raise InvalidValueError(f"{where} has no target; add target = {_EXAMPLE}")
    if {"drafter", "no_drafter"} <= entry.keys():
        raise InvalidValueError(f"{where} has both drafter and no_drafter; keep one")
    return Pair(name=name, **{key: _value(key, entry[key], where) for key in entry})


def _with_hint(key: str, entry: Mapping[str, Any]) -> str:
    """Return an unknown key, and what to do about it."""
    if isinstance(entry[key], dict):
        # TOML reads a dot in a bare name as the start of a table within a table.
        return f"{key!r}; a name with a dot needs quotes"
    if close := difflib.get_close_matches(key, _KEYS, n=1):
        return f"{key!r}; did you mean {close[0]}?"
    return f"{key!r}; remove it: the keys are {', '.join(_KEYS)}"


def _value(key: str, value: Any, where: str) -> Any:
    """Return the value of a field of Pair. where: the entry, for messages."""
    if key in ("target", "drafter"):
        return _reference(value, f"{where}: {key}")
    if not _fits(key, value):
        raise InvalidValueError(f"{where}: {key} is {value!r}; it is {_WANTED.get(key, 'a text')}")
    return tuple(value) if key == "unverified" else value


def _reference(text: Any, where: str) -> Reference:
    found: Reference | None = None
    if isinstance(text, str):
        with_us = {_BUNDLED + file.name: file for file in bundled()}
        found = with_us.get(text) or repository(text) or _absolute(text)
    if found is None:
        raise InvalidValueError(f"{where} is {text!r}; it is an absolute path or user/repo[:quant]")
    return found


def _absolute(text: str) -> Path | None:
    try:
        path = Path(text).expanduser()
    except RuntimeError:  # there is no such user
        return None
    return path if path.is_absolute() else None


def _fits(key: str, value: Any) -> bool:
    """Whether a value is valid for its key; for every key but target and drafter."""
    match key:
        case "prompt":
            return value in ("chat", "raw")
        case "context":
            return type(value) is int and value > 0
        case "sizes":
            return isinstance(value, dict) and all(map(_is_size, value.values()))
        case "unverified":
            return isinstance(value, list) and all(each in _KEYS for each in value)
        case _:
            return isinstance(value, str)


def _is_size(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < math.inf
