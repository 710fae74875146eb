"""Folders: findings about localspec's own folders, and about the user's models.toml in one."""

import os
import shutil
from pathlib import Path

from localspec.doctor.finding import Finding, error, ok, warning
from localspec.errors import InvalidValueError
from localspec.models import registry
from localspec.utils import paths
from localspec.utils.format import format_bytes

_LITTLE_BYTES = 10**9


def folder_finding(topic: str, folder: Path, variable: str) -> Finding:
    """Check that files can be written to a folder, which need not exist yet.

    variable: the environment variable that names another folder.
    """
    existing = next((each for each in (folder, *folder.parents) if os.path.exists(each)), folder)
    try:
        free = shutil.disk_usage(existing).free
    except OSError as failure:
        return warning(topic, f"{folder}: {failure.strerror}", f"set {variable} to another folder")
    if not existing.is_dir():
        return warning(
            topic, f"{folder}: {existing} is not a folder", f"set {variable} to another folder"
        )
    if not os.access(existing, os.W_OK | os.X_OK):
        return warning(
            topic, f"{folder} cannot be written to", f"set {variable} to a folder that can"
        )
    text = f"{folder}, {format_bytes(free)} free"
    if free < _LITTLE_BYTES:
        return warning(topic, text, f"make room, or set {variable} to a folder on another disk")
    return ok(topic, text)


def localspec_folders() -> list[Finding]:
    """Check localspec's own folders and the user's pairs."""
    return [
        folder_finding("config", paths.config_folder(), "LOCALSPEC_HOME"),
        folder_finding("data", paths.data_folder("."), "LOCALSPEC_HOME"),
        folder_finding("cache", paths.cache_folder("."), "LOCALSPEC_HOME"),
        _pairs(),
    ]


def _pairs() -> Finding:
    file = registry.user_file()
    try:
        known = registry.pairs()
    except InvalidValueError as failure:
        return error("pairs", str(failure), f"repair {file}, or move it", failure.exit_code)
    users = f"with those of {file}" if file.exists() else f"{file} can add to them"
    return ok("pairs", f"{len(known)} known, {users}")
