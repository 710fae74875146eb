"""Places: findings about folders, and about the user's own file in one of them."""

import os
import shutil
from pathlib import Path

from localspec.doctor.finding import Finding, error, ok, warning
from localspec.errors import InvalidValueError
from localspec.models import registry
from localspec.utils import paths
from localspec.utils.format import format_bytes

_LITTLE = 10**9


def place(topic: str, folder: Path, variable: str) -> Finding:
    """Whether a folder, which need not exist yet, can be written to. variable: what moves it."""
    standing = next((each for each in (folder, *folder.parents) if os.path.exists(each)), folder)
    try:
        free = shutil.disk_usage(standing).free
    except OSError as failure:
        return warning(topic, f"{folder}: {failure.strerror}", f"set {variable} to another folder")
    if not standing.is_dir():
        return warning(
            topic, f"{folder}: {standing} is no folder", f"set {variable} to another folder"
        )
    if not os.access(standing, os.W_OK | os.X_OK):
        return warning(
            topic, f"{folder} cannot be written to", f"set {variable} to a folder that can"
        )
    text = f"{folder}, {format_bytes(free)} free"
    if free < _LITTLE:
        return warning(topic, text, f"make room, or set {variable} to a folder on another disk")
    return ok(topic, text)


def own_places() -> list[Finding]:
    """localspec's own folders, and the user's pairs."""
    return [
        place("config", paths.config_folder(), "LOCALSPEC_HOME"),
        place("cache", paths.cache_folder("."), "LOCALSPEC_HOME"),
        _pairs(),
    ]


def _pairs() -> Finding:
    file = registry.user_file()
    try:
        known = registry.pairs()
    except InvalidValueError as failure:
        return error("pairs", str(failure), f"mend {file}, or move it", failure.exit_code)
    own = f"with those of {file}" if file.exists() else f"{file} can add to them"
    return ok("pairs", f"{len(known)} known, {own}")
