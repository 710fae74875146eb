"""Store: the models in huggingface_hub's cache on this disk. Reading it opens no socket."""

from collections.abc import Iterator
from pathlib import Path

from huggingface_hub import constants

from localspec.errors import ModelNotFoundError
from localspec.models.quant import choose, units
from localspec.models.reference import Repository

_PREFIX = "models--"


def hub_cache() -> Path:
    """Where huggingface_hub keeps what it downloads (HF_HUB_CACHE, HF_HOME)."""
    return Path(constants.HF_HUB_CACHE)


def find(wanted: Repository) -> Path | None:
    """The (first) file of a model that was downloaded whole, else None.

    Raises ModelNotFoundError where several that were are meant alike.
    """
    for snapshot in _snapshots(wanted.id):
        files = [
            path.relative_to(snapshot).as_posix()
            for path in snapshot.rglob("*.gguf")
            if path.is_file()  # not a link to a file that is gone
        ]
        if not units(files):
            continue
        try:
            return snapshot / choose(files, wanted.quant, str(wanted.id)).first
        except ModelNotFoundError:
            if wanted.quant is None:
                raise
    return None


def repository_of(path: Path) -> str | None:
    """The repository a file of the cache is from; None for any other file."""
    try:
        folder = path.absolute().relative_to(hub_cache().absolute()).parts[0]
    except (ValueError, IndexError):
        return None
    return folder.removeprefix(_PREFIX).replace("--", "/", 1) if _PREFIX in folder else None


def _snapshots(repository: str) -> Iterator[Path]:
    """Its revisions on disk: the one called main first, then the newest."""
    folder = hub_cache() / f"{_PREFIX}{repository.replace('/', '--')}"
    try:
        main = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        main = ""
    try:
        found = [path for path in (folder / "snapshots").iterdir() if path.is_dir()]
    except OSError:
        return
    found.sort(key=lambda path: (path.name == main, path.stat().st_mtime), reverse=True)
    yield from found
