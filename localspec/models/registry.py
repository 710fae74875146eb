"""Registry: the pairs of localspec's models.toml and of the user's own models.toml."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple

from localspec.errors import InvalidValueError
from localspec.hub.reference import Reference, Repository, repository
from localspec.models.bundled_files import bundled_folder
from localspec.models.listed_drafter import ListedDrafter, parse_drafters
from localspec.sampling.params import NUMERIC, SamplingParams
from localspec.utils.paths import config_folder
from localspec.utils.similar_names import did_you_mean
from localspec.utils.toml_file import parse_toml, read_text

# The version of the format; a file may name it. Raise it when old files would be misread.
_VERSION = 1
_BUNDLED = "bundled:"
_MOST_GIGABYTES = 1e6
# A name has no colon and no slash, which tell a repository.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A target and its drafters.

    drafters: the most promising first; empty where no model drafts, `no_drafter` says why then.
    without_heads: repositories with the same model whose files lack the heads inside. prompt: how a
    prompt is read by default: as a turn of a chat, or raw, as a text to continue. parameters: of
    the target and a draft model, as text. context: tokens that the target was trained for, 0 where
    unknown. sizes: gigabytes (1e9 bytes) of the target's file by quantisation. sampling: settings
    of SamplingParams that the target's makers recommend. unverified: the fields that could not be
    checked.
    """

    name: str
    target: Reference
    drafters: tuple[ListedDrafter, ...] = ()
    no_drafter: str | None = None
    without_heads: tuple[Repository, ...] = ()
    prompt: Literal["chat", "raw"] = "chat"
    parameters: str = ""
    context: int = 0
    sizes: Mapping[str, float] = field(default_factory=dict)
    sampling: Mapping[str, float] = field(default_factory=dict)
    licence: str = ""
    note: str = ""
    unverified: tuple[str, ...] = ()

    @property
    def files(self) -> list[Reference]:
        """The target, and every drafter that has a file of its own."""
        return [self.target, *(each.file for each in self.drafters if each.file)]


# `drafter` is one draft model, in short.
_KEYS = [*(each.name for each in fields(Pair) if each.name != "name"), "drafter"]
_WANTED = {
    "prompt": "chat or raw",
    "context": "a whole number of tokens",
    "sizes": "a table of gigabytes by quantisation",
    "unverified": f"a list of {', '.join(_KEYS)}",
    "without_heads": "a list of user/repo",
}


_EXAMPLE = '"user/repo", or an absolute path'


class Bundled(NamedTuple):
    """The files of the pair that comes with localspec."""

    target: Path
    drafter: Path


def bundled() -> Bundled:
    """Return the pair that is used where the user names no model."""
    folder = bundled_folder()
    return Bundled(folder / "terminal-9m-q8_0.gguf", folder / "terminal-5m-q4_0.gguf")


def pairs() -> Mapping[str, Pair]:
    """Return every pair by its name: the user's own, then those of localspec not replaced by them.

    Raises InvalidValueError for a user's models.toml that cannot be used.
    """
    own = _parse(read_text(user_file()), str(user_file()))
    return {**own, **_curated(), **own}


def pair_named(name: str) -> Pair | None:
    """Find a pair by any of its names, see `pair_and_quant`; None for every other text.

    Raises InvalidValueError for a user's models.toml that cannot be used.
    """
    found = pair_and_quant(name)
    return found[0] if found else None


def pair_and_quant(name: str) -> tuple[Pair, str] | None:
    """Find a pair by `name` or `name:quant`, in any case, and that quant, else "".

    What Ollama calls `qwen3:8b` is the pair qwen3-8b, where there is no pair qwen3. Raises
    InvalidValueError for a user's models.toml that cannot be used.
    """
    label, _, rest = name.partition(":")
    tag, _, quant = rest.partition(":")
    if pair := _called(label):
        return pair, rest
    pair = _called(f"{label}-{tag}") if tag else None
    return (pair, quant) if pair else None


def _called(label: str) -> Pair | None:
    known = pairs()
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


def _parse(text: str, file: str) -> Mapping[str, Pair]:
    tables = parse_toml(text, file)
    _require_version(tables.pop("version", _VERSION), file)
    entries = tables.pop("pairs", {})
    if tables or not isinstance(entries, dict):
        stray = min(tables, default="pairs")
        raise InvalidValueError(f"{file}: {stray!r} is not a pair; a pair begins with [pairs.NAME]")
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
            f"{file}: {name!r} is not a valid name of a pair; use letters, digits, dots and hyphens"
        )
    where = f"{file}: [pairs.{name}]"
    if not isinstance(entry, dict):
        raise InvalidValueError(f"{where} is {entry!r}; write target = {_EXAMPLE} below that line")
    if unknown := entry.keys() - set(_KEYS):
        raise InvalidValueError(f"{where} has an unknown key {_with_hint(min(unknown), entry)}")
    if "target" not in entry:
        raise InvalidValueError(f"{where} has no target; add target = {_EXAMPLE}")
    said = [key for key in ("drafter", "drafters", "no_drafter") if key in entry]
    if len(said) > 1:
        raise InvalidValueError(f"{where} has both {said[0]} and {said[1]}; keep one")
    values = {key: _value(key, entry[key], where) for key in entry}
    if drafter := values.pop("drafter", None):
        values["drafters"] = (ListedDrafter(file=drafter),)
    return Pair(name=name, **values)


def _with_hint(key: str, entry: Mapping[str, Any]) -> str:
    """Return an unknown key, and what to do about it."""
    if isinstance(entry[key], dict):
        # TOML reads a dot in a bare name as the start of a table within a table.
        return f"{key!r}; a name with a dot needs quotes"
    remove = f"remove it: the keys are {', '.join(_KEYS)}"
    return f"{key!r}; {did_you_mean(key, _KEYS, most=1) or remove}"


def _value(key: str, value: Any, where: str) -> Any:
    """Return the value of a field of Pair. where: the entry, for messages."""
    if key in ("target", "drafter"):
        return _reference(value, f"{where}: {key}")
    if key == "drafters":
        return parse_drafters(value, where, _reference)
    if key == "sampling":
        return _sampling(value, f"{where}: sampling")
    if not _fits(key, value):
        raise InvalidValueError(f"{where}: {key} is {value!r}; it is {_WANTED.get(key, 'a text')}")
    if key == "without_heads":
        return tuple(found for each in value if (found := repository(each)))
    return tuple(value) if key == "unverified" else value


def _sampling(values: Any, where: str) -> Mapping[str, float]:
    """Return settings of SamplingParams by name. where: the key, for messages."""
    if not isinstance(values, dict):
        wanted = "a table of numbers, as { temperature = 0.6, top_k = 20 }"
        raise InvalidValueError(f"{where} is {values!r}; it is {wanted}")
    if unknown := values.keys() - set(NUMERIC):
        name = min(unknown)
        hint = did_you_mean(name, NUMERIC) or f"the keys are {', '.join(NUMERIC)}"
        raise InvalidValueError(f"{where} has an unknown key {name!r}; {hint}")
    try:
        params = SamplingParams(**values)
    except InvalidValueError as error:
        raise InvalidValueError(f"{where}: {error}") from error
    return {name: getattr(params, name) for name in values}


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
    """Whether a value is valid for its key; for those that `_value` has nothing else for."""
    match key:
        case "prompt":
            return value in ("chat", "raw")
        case "context":
            return type(value) is int and value > 0
        case "sizes":
            return isinstance(value, dict) and all(map(_is_size, value.values()))
        case "unverified":
            return isinstance(value, list) and all(each in _KEYS for each in value)
        case "without_heads":
            return isinstance(value, list) and all(
                isinstance(each, str) and repository(each) for each in value
            )
        case _:
            return isinstance(value, str)


def _is_size(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < _MOST_GIGABYTES
