"""Presets: system prompts and samplings by name, in a file that people may write themselves.

[presets.reviewer]
system = "You review code, briefly."
temperature = 0.2
"""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig
from localspec.utils.paths import config_folder, make_private_folder

_NAME = re.compile(r"[\w.-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Preset:
    """system: what the model is told before everything else. options: those of GenerationConfig."""

    system: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def file() -> Path:
    """Where they are, if there are any."""
    return config_folder() / "presets.toml"


def presets() -> Mapping[str, Preset]:
    """All of them by name. Raises InvalidValueError for a file that cannot be used."""
    try:
        tables = tomllib.loads(file().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidValueError(f"{file()} cannot be read: {error.strerror}; mend it") from error
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"{file()} is no TOML: {error}") from error
    entries = tables.get("presets", {})
    if not isinstance(entries, dict) or tables.keys() - {"presets"}:
        raise InvalidValueError(f"{file()}: a preset begins with [presets.NAME]")
    return {name: _preset(name, entry) for name, entry in entries.items()}


def named(name: str) -> Preset:
    """One of them. Raises InvalidValueError where there is none of this name."""
    known = presets()
    if name not in known:
        choice = f"choose {', '.join(known)}" if known else f"{file()} has none"
        raise InvalidValueError(f"there is no preset {name!r}; {choice}")
    return known[name]


def add(name: str, preset: Preset) -> None:
    """Write one behind the others. Raises InvalidValueError where that cannot be."""
    if not _NAME.fullmatch(name):
        raise InvalidValueError(f"{name!r} is no name; letters, digits, dots, hyphens")
    if name in presets():
        raise InvalidValueError(f"there is a preset {name!r}; change it in {file()}")
    given = {"system": preset.system, **preset.options}
    lines = [f"{key} = {_toml(value)}" for key, value in given.items() if value is not None]
    text = "\n".join([f'\n[presets."{name}"]', *lines, ""])
    try:
        make_private_folder(file().parent)
        with file().open("a", encoding="utf-8") as end:
            end.write(text)
    except OSError as error:
        raise InvalidValueError(f"{file()} cannot be written: {error.strerror}") from error


def _preset(name: str, entry: Any) -> Preset:
    where = f"{file()}: [presets.{name}]"
    if not isinstance(entry, dict):
        raise InvalidValueError(f"{where} is no table")
    options = {key: value for key, value in entry.items() if key != "system"}
    system = entry.get("system")
    if system is not None and not isinstance(system, str):
        raise InvalidValueError(f"{where}: system is {system!r}; it is a text")
    try:
        GenerationConfig.of(**options)
    except InvalidValueError as error:
        raise InvalidValueError(f"{where}: {error}") from error
    return Preset(system, options)


def _toml(value: Any) -> str:
    """A value as TOML, which for texts and numbers is written as JSON is."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
