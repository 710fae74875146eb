"""Versions: of Python, localspec and llama-cpp-python, and the range of it that localspec needs."""

import platform
import re
from importlib import metadata

from localspec import __version__
from localspec.doctor.finding import Finding, error, note, ok, warning
from localspec.utils.installer import installer

_LIBRARY = "llama-cpp-python"
_TOPIC = "versions"
_CLAUSE = re.compile(r"(>=|<)\s*([\d.]+)")


def versions() -> list[Finding]:
    """Check what is installed."""
    return [ok(_TOPIC, f"localspec {__version__}, Python {platform.python_version()}"), _library()]


def extras() -> list[Finding]:
    """Check what only some commands need."""
    try:
        return [ok("extras", f"textual {metadata.version('textual')}")]
    except metadata.PackageNotFoundError:
        return [
            note(
                "extras",
                "textual is not installed; the chat needs it",
                f"{installer()} textual",
            )
        ]


def requirement() -> str:
    """Return the library and its versions as pip takes them; no versions if they are not known."""
    try:
        needed = metadata.requires("localspec") or []
    except metadata.PackageNotFoundError:
        needed = []
    return next((each for each in needed if each.startswith(_LIBRARY)), _LIBRARY)


def rebuild(cmake_args: str | None = None) -> str:
    """Return the command that compiles the library anew."""
    command = f'{installer()} --force-reinstall --no-cache-dir "{requirement()}"'
    return f'CMAKE_ARGS="{cmake_args}" {command}' if cmake_args else command


def within(version: str, needed: str) -> bool:
    """Return whether a version satisfies the `>=` and `<` of a requirement."""
    have = _numbers(version)
    return all(
        have >= _numbers(bound) if sign == ">=" else have < _numbers(bound)
        for sign, bound in _CLAUSE.findall(needed)
    )


def _library() -> Finding:
    needed = requirement()
    try:
        version = metadata.version(_LIBRARY)
    except metadata.PackageNotFoundError:
        return error(
            _TOPIC, f"{_LIBRARY} is not installed", f'{installer()} "{needed}"', exit_code=5
        )
    if within(version, needed):
        return ok(_TOPIC, f"{_LIBRARY} {version}")
    return warning(
        _TOPIC,
        f"{_LIBRARY} is {version}, and this localspec is made for {needed}",
        f'{installer()} "{needed}"',
    )


def _numbers(version: str) -> tuple[int, ...]:
    """Return (0, 3, 36) for "0.3.36.post1"."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
