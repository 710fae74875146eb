"""Presets: named system prompts and sampling options, in a file that users can edit.

[presets.reviewer]
system = "You review code, briefly."
temperature = 0.2
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig
from localspec.utils.paths import config_folder, make_private_folder
from localspec.utils.toml_file import parse_toml, read_text

_NAME = re.compile(r"[\w.-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Preset:
    """system: the system prompt. options: of GenerationConfig."""

    system: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def presets_file() -> Path:
    """The file of the presets; it may not exist."""
    return config_folder() / "presets.toml"


def load_all() -> Mapping[str, Preset]:
    """All presets by name. Raises InvalidValueError for a file that cannot be used."""
    tables = parse_toml(read_text(presets_file()), str(presets_file()))
    entries = tables.get("presets", {})
    if not isinstance(entries, dict) or tables.keys() - {"presets"}:
        raise InvalidValueError(f"{presets_file()}: a preset begins with [presets.NAME]")
    return {name: _preset(name, entry) for name, entry in entries.items()}


def load(name: str) -> Preset:
    """The preset of this name. Raises InvalidValueError if there is none."""
    known = load_all()
    if name not in known:
        choice = f"choose {', '.join(known)}" if known else f"{presets_file()} has none"
        raise InvalidValueError(f"there is no preset {name!r}; {choice}")
    return known[name]


def add(name: str, preset: Preset) -> None:
    """Append a preset to the file. Raises InvalidValueError: bad name, or file not writable."""
    if not _NAME.fullmatch(name):
        raise InvalidValueError(
            f"{name!r} is no name of a preset; use letters, digits, dots and hyphens"
        )
    if name in load_all():
        raise InvalidValueError(
            f"there is a preset {name!r} already; change it in {presets_file()}"
        )
    given = {"system": preset.system, **preset.options}
    lines = [f"{key} = {_toml(value)}" for key, value in given.items() if value is not None]
    text = "\n".join([f'\n[presets."{name}"]', *lines, ""])
    try:
        make_private_folder(presets_file().parent)
        with presets_file().open("a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise InvalidValueError(f"{presets_file()} cannot be written: {error.strerror}") from error


def _preset(name: str, entry: Any) -> Preset:
    where = f"{presets_file()}: [presets.{name}]"
    if not isinstance(entry, dict):
        raise InvalidValueError(f"{where} is not a table")
    options = {key: value for key, value in entry.items() if key != "system"}
    system = entry.get("system")
    if system is not None and not isinstance(system, str):
        raise InvalidValueError(f"{where}: system is {system!r}; it must be a text")
    try:
        GenerationConfig.of(**options)
    except InvalidValueError as error:
        raise InvalidValueError(f"{where}: {error}") from error
    return Preset(system, options)


def _toml(value: Any) -> str:
    """A value as TOML; texts, numbers and lists are the same in JSON."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
