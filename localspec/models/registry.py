"""Registry: the curated pairs of models.toml, and the user's own."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_type_hints

from localspec.errors import InvalidValueError
from localspec.folders import config_folder
from localspec.models.reference import Reference, repository

_BUNDLED = "bundled:"


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


class Bundled(NamedTuple):
    """The pair that comes with localspec."""

    target: Path
    drafter: Path


def bundled() -> Bundled:
    """The pair used when no model is named."""
    folder = Path(str(resources.files("localspec.bundled")))
    return Bundled(folder / "pycode-7m-q8_0.gguf", folder / "pycode-4m-q4_0.gguf")


def pairs() -> Mapping[str, Pair]:
    """Every pair by its name: the curated ones, the user's own in place of those of equal name.

    Raises InvalidValueError for a user's file that cannot be used.
    """
    return {**_curated(), **_users(user_file())}


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
        raise InvalidValueError(f"{file} cannot be read: {error}; mend or move it") from error
    return _parse(text, str(file))


def _parse(text: str, file: str) -> Mapping[str, Pair]:
    try:
        entries = tomllib.loads(text).get("pairs", {})
    except tomllib.TOMLDecodeError as error:
        raise InvalidValueError(f"{file} is no TOML: {error}") from error
    if not isinstance(entries, dict):
        raise InvalidValueError(f"{file}: pairs must be a table of [pairs.NAME]")
    return {name: _pair(name, entry, f"{file}: [pairs.{name}]") for name, entry in entries.items()}


def _pair(name: str, entry: Any, where: str) -> Pair:
    if not isinstance(entry, dict) or "target" not in entry:
        raise InvalidValueError(f"{where} must be a table with a target")
    known = get_type_hints(Pair).keys() - {"name"}
    if unknown := entry.keys() - known:
        raise InvalidValueError(f"{where} has an unknown key {min(unknown)!r}")
    if entry.get("prompt", "chat") not in ("chat", "raw"):
        raise InvalidValueError(f"{where}: prompt is {entry['prompt']!r}; it is chat or raw")
    entry = dict(entry)
    for role in ("target", "drafter"):
        if role in entry:
            entry[role] = _reference(entry[role], f"{where}: {role}")
    return Pair(name=name, **{**entry, "unverified": tuple(entry.get("unverified", ()))})


def _reference(text: Any, where: str) -> Reference:
    if isinstance(text, str) and text.startswith(_BUNDLED):
        return bundled().target.with_name(text.removeprefix(_BUNDLED))
    found = repository(text) if isinstance(text, str) else None
    if found:
        return found
    path = Path(text).expanduser() if isinstance(text, str) else Path()
    if path.is_absolute():
        return path
    raise InvalidValueError(f"{where} is {text!r}; it is an absolute path or user/repo[:quant]")
