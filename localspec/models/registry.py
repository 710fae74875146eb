"""Registry: the curated pairs of models.toml, and the user's own."""

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

_BUNDLED = "bundled:"
# With a colon or a slash in it, a name would be a reference.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A target and its drafter.

    drafter: None where no model drafts; then `no_drafter` says why. prompt: how a prompt is taken
    when nothing is said: as a chat turn, or raw, to be continued. parameters: of target and
    drafter, in words. context: tokens the target was made for. sizes: gigabytes (1e9 bytes) of the
    target's file by quantisation. unverified: which of these facts could not be looked up.
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


class Bundled(NamedTuple):
    """The pair that comes with localspec."""

    target: Path
    drafter: Path


def bundled() -> Bundled:
    """The pair used when no model is named."""
    folder = Path(str(resources.files("localspec.bundled")))
    return Bundled(folder / "pycode-7m-q8_0.gguf", folder / "pycode-4m-q4_0.gguf")


def pairs() -> Mapping[str, Pair]:
    """Every pair by its name: the user's own, then the curated ones they do not replace.

    Raises InvalidValueError for a user's file that cannot be used.
    """
    own = _users(user_file())
    return {**own, **_curated(), **own}


def pair_named(name: str) -> Pair | None:
    """Find a pair by `name` or `name:quant`, in any case; None for every other text."""
    label = name.partition(":")[0]
    known = pairs()
    return known.get(label) or known.get(label.lower())


def user_file() -> Path:
    """Where the user's own pairs are, if there are any."""
    return config_folder() / "models.toml"


@cache
def _curated() -> Mapping[str, Pair]:
    packaged = resources.files("localspec") / "models.toml"
    # In a checkout it lies beside the package, where people look for it.
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
        raise InvalidValueError(f"{file} is no TOML: {error}") from error
    entries = tables.pop("pairs", {})
    if tables or not isinstance(entries, dict):
        stray = min(tables, default="pairs")
        raise InvalidValueError(f"{file}: {stray!r} is no pair; a pair begins with [pairs.NAME]")
    return {name: _pair(name, entry, file) for name, entry in entries.items()}


def _pair(name: str, entry: Any, file: str) -> Pair:
    if not _NAME.fullmatch(name):
        raise InvalidValueError(f"{file}: {name!r} is no name; letters, digits, dots, hyphens")
    where = f"{file}: [pairs.{name}]"
    if not isinstance(entry, dict) or "target" not in entry:
        # TOML takes a dot in a bare name for a table within a table.
        raise InvalidValueError(f"{where} has no target (a name with a dot needs quotes)")
    if unknown := entry.keys() - set(_KEYS):
        raise InvalidValueError(f"{where} has an unknown key {min(unknown)!r}")
    if {"drafter", "no_drafter"} <= entry.keys():
        raise InvalidValueError(f"{where} has both drafter and no_drafter; keep one")
    return Pair(name=name, **{key: _value(key, entry[key], where) for key in entry})


def _value(key: str, value: Any, where: str) -> Any:
    """What a key's value becomes in a Pair."""
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
    """Is a value, other than a reference, what its key takes?"""
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
