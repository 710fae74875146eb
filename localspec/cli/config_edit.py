"""Editing config.toml: one value is changed, and every other letter of the file stays."""

import json
import re

from localspec.errors import InvalidValueError
from localspec.utils.toml_file import parse_toml

_VALUE = r""""(?:[^"\\]|\\.)*"|'[^']*'|[^\s#"']+"""
_FIRST_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)


def with_value(text: str, name: str, value: str | float | None, file: str) -> str:
    """Return the text of a file with another value of a key, or without the key (None).

    file: its name, for messages. Raises InvalidValueError for a file that must be edited by hand.
    """
    wanted = {**parse_toml(text, file), name: value}
    if value is None:
        del wanted[name]
    edited = _edited(text, name, value)
    try:
        if parse_toml(edited, file) == wanted:
            return edited
    except InvalidValueError:
        pass  # such as a value with control characters
    raise InvalidValueError(f"{file} cannot be changed here without loss; edit {name} in it")


def _edited(text: str, name: str, value: str | float | None) -> str:
    line = re.compile(
        rf"^([ \t]*{name}[ \t]*=[ \t]*)({_VALUE})([ \t]*(?:#.*)?)\r?\n?", re.MULTILINE
    )
    if value is None:
        return line.sub("", text, count=1)
    toml = json.dumps(value, ensure_ascii=False)
    if found := line.search(text):
        return text[: found.start(2)] + toml + text[found.end(2) :]
    table = _FIRST_TABLE.search(text)
    at = table.start() if table else len(text)
    before = text[:at]
    gap = "\n" if before and not before.endswith("\n") else ""
    return f"{before}{gap}{name} = {toml}\n{text[at:]}"
