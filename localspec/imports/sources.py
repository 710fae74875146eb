"""Sources: where other tools keep their models on this machine."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from localspec.errors import InvalidValueError, ModelNotFoundError
from localspec.hub.store import hub_cache
from localspec.imports.collection import FOLDER, LLAMA_CPP, LM_STUDIO, OLLAMA, Collection
from localspec.imports.gguf_folders import folder_collections, setting
from localspec.imports.links import name_for
from localspec.imports.ollama import is_ollama, ollama_collections
from localspec.utils.bounded_file import read_regular
from localspec.utils.paths import real_path

_MOST_PATH_BYTES = 4096
_OLLAMA_SERVICE = Path("/usr/share/ollama/.ollama/models")


def all_folders() -> list[tuple[str, Path]]:
    """Return every folder in which another tool may keep models, with the tool; it may not exist.

    What is in the Hub's cache is left out: those models are there without an import.
    """
    folders = [(OLLAMA, each) for each in _ollama_folders()]
    folders += [(LM_STUDIO, each) for each in _lm_studio_folders()]
    folders += [(LLAMA_CPP, _llama_cpp_folder())]
    return [*dict.fromkeys((tool, path) for tool, path in folders if path != hub_cache())]


def collections_of(tool: str, folder: Path) -> list[Collection]:
    """Return what a tool keeps in a folder."""
    if tool == OLLAMA:
        return ollama_collections(folder)
    return folder_collections(tool, folder, name_for(folder) if tool == FOLDER else "")


def source_folders(source: str) -> list[tuple[str, Path]]:
    """Return the folders that a user names as a source: a tool, or a folder.

    Raises ModelNotFoundError where there is none, and InvalidValueError for a source that needs no
    import.
    """
    if not source.strip():
        raise InvalidValueError(
            f"--from is {source!r}; it takes ollama, lmstudio, llama.cpp or a folder"
        )
    tool = {"lm-studio": LM_STUDIO, "llamacpp": LLAMA_CPP}.get(source.lower(), source.lower())
    if tool in (OLLAMA, LM_STUDIO, LLAMA_CPP) and not os.path.isdir(source):
        known = [path for of, path in all_folders() if of == tool]
        if there := [(tool, path) for path in known if os.path.isdir(path)]:
            return there
        looked = " or ".join(map(str, known)) or f"{hub_cache()}, which is the Hub's cache"
        closed = next((why for path in known if (why := unreadable(tool, path))), None)
        raise ModelNotFoundError(
            closed
            or f"{tool} has no models here: there is no {looked}; pass its folder of models to "
            "--from"
        )
    folder = _absolute(source)
    if not os.path.isdir(folder):
        raise ModelNotFoundError(
            f"there is no folder {source!r}; --from takes ollama, lmstudio, llama.cpp or a folder"
        )
    if real_path(folder) == real_path(hub_cache()):
        raise InvalidValueError(
            f"{source!r} is the Hub's cache, whose models need no import; localspec ls shows them"
        )
    for path in (folder, folder / "models"):
        if is_ollama(path):
            return [(OLLAMA, path)]
    return [(next((of for of, path in all_folders() if path == folder), FOLDER), folder)]


def unreadable(tool: str, folder: Path) -> str | None:
    """Say that a folder may not be looked into; None where it may, or is not there."""
    try:
        os.listdir(folder)
    except PermissionError:
        return (
            f"{tool} has a folder that you may not read ({folder}); get the right to read it, as a "
            "member of its group, or set its variable for the folder of models to another"
        )
    except OSError:
        pass
    return None


def _ollama_folders() -> Iterator[Path]:
    if chosen := os.environ.get("OLLAMA_MODELS"):
        yield _absolute(chosen)
        return
    yield _absolute("~/.ollama/models")
    if sys.platform == "linux":  # where the service of its installer keeps them
        yield _OLLAMA_SERVICE


def _lm_studio_folders() -> Iterator[Path]:
    homes = [_absolute("~/.lmstudio"), _absolute("~/.cache/lm-studio")]
    try:
        pointer = read_regular(_absolute("~/.lmstudio-home-pointer"), _MOST_PATH_BYTES)
        moved_home = pointer.decode().strip()
    except (OSError, ValueError):
        moved_home = ""  # LM Studio is in one of its usual places, or not here at all
    if moved_home and moved_home.isprintable():
        homes.insert(0, _absolute(moved_home))
    for home in homes:
        if moved := setting(home / "settings.json", "downloadsFolder"):
            yield _absolute(moved)
        yield home / "models"


def _llama_cpp_folder() -> Path:
    if chosen := os.environ.get("LLAMA_CACHE"):
        return _absolute(chosen)
    if sys.platform == "win32":
        cache = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        cache = "~/Library/Caches"
    else:
        cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return _absolute(cache) / "llama.cpp"


def _absolute(text: str) -> Path:
    return Path(os.path.abspath(os.path.expanduser(text)))
