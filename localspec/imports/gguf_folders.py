"""Folders of GGUF files: those of LM Studio, llama.cpp's cache, and any other."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from localspec.imports.collection import LLAMA_CPP, Collection, folders_of
from localspec.imports.links import imports_folder
from localspec.utils.format import printable
from localspec.utils.stored_json import DamagedFileError, read_stored

_ENDING = ".gguf"
# A repository in the layout of huggingface_hub's cache, which llama.cpp uses too.
_SNAPSHOT = re.compile(r"models--([^/]+?)--([^/]+)/snapshots/[^/]+/(.+)")
# llama.cpp's older cache has all files in one folder, as user_repo_file, and what it knows of a
# repository beside them.
_MANIFEST = re.compile(r"manifest=([^=/]+)=([^=/]+)=[^=/]+\.json")
_FLAT = re.compile(r"([^_/]+)_([^/]+?-GGUF)_([^/]+)", re.IGNORECASE)
_UNSAFE = "has a name that may not be one here; rename the file"


def folder_collections(tool: str, folder: Path, name: str = "") -> list[Collection]:
    """Return the collections in a folder, by name.

    name: what the whole folder is called, if it is one collection.
    """
    found: dict[tuple[str, ...], dict[str, Path]] = {}
    problems: dict[tuple[str, ...], dict[str, str]] = {}
    known = _repositories(folder) if tool == LLAMA_CPP else {}
    for path in _gguf_files(folder):
        # Where the ending is in capitals, the link has the usual one.
        file = path.relative_to(folder).as_posix()[: -len(_ENDING)] + _ENDING
        below = f"{name}/{file}" if name else _as_repository(file, tool, known)
        folders, within = folders_of(tool, below)
        if _is_safe(below):
            found.setdefault(folders, {}).setdefault(within, path)
        else:
            problems.setdefault((), {})[f"{tool}:{printable(below)}"] = _UNSAFE
    return [
        Collection(tool, folders, found.get(folders, {}), problems.get(folders, {}))
        for folders in sorted({*found, *problems})
    ]


def _gguf_files(folder: Path) -> Iterator[Path]:
    """Yield the GGUF files in a folder and in those below.

    Hidden ones, loops and our own links are left out.
    """
    seen = {os.path.realpath(imports_folder())}
    for above, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(above)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for file in sorted(files):
            if file.lower().endswith(_ENDING) and not file.startswith("."):
                yield Path(above, file)


def _as_repository(file: str, tool: str, known: Mapping[str, str]) -> str:
    """Return the path of a file as user/repo/file, where its own tells which these are.

    known: repositories of llama.cpp's older cache, by the beginnings of the names of files.
    """
    if found := _SNAPSHOT.fullmatch(file):
        return "/".join(found.groups())
    if tool != LLAMA_CPP or "/" in file:
        return file
    for start, repository in known.items():
        if file.startswith(start):
            return f"{repository}/{file.removeprefix(start)}"
    found = _FLAT.fullmatch(file)
    return "/".join(found.groups()) if found else file


def _repositories(cache: Path) -> dict[str, str]:
    """Return the repositories that llama.cpp's older cache has files of."""
    try:
        names = [found for each in os.listdir(cache) if (found := _MANIFEST.fullmatch(each))]
    except OSError:
        return {}
    return {f"{found[1]}_{found[2]}_": f"{found[1]}/{found[2]}" for found in names}


def _is_safe(file: str) -> bool:
    inside = ".." not in file.split("/")
    return inside and file.isprintable() and "\\" not in file and ":" not in file


def setting(file: Path, name: str) -> str | None:
    """Return a text of a JSON file of settings; None where there is none."""
    try:
        value = read_stored(file)
    except (OSError, DamagedFileError):
        return None
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, str) and found.isprintable() and found else None
