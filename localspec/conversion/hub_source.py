"""Published heads in repositories of the Hub: which of their files a conversion needs."""

from pathlib import Path

from localspec.conversion.convert import Origin
from localspec.errors import ModelLoadError, ModelNotFoundError
from localspec.hub import store
from localspec.hub.listing import RemoteModel, RemoteRepository

_CONFIG, _INDEX, _WEIGHTS = "config.json", ".safetensors.index.json", ".safetensors"
_PICKLED = (".bin", ".pt", ".pth")


def checkpoint_files(repository: RemoteRepository) -> RemoteModel:
    """Return the files of the checkpoint in a repository, its config.json first.

    Raises ModelNotFoundError for a repository without one, and ModelLoadError for one that has
    nothing but pickled weights, which are never fetched.
    """
    top = sorted(path for path in repository.siblings if "/" not in path)
    weights = [path for path in top if path.endswith((_WEIGHTS, _INDEX))]
    if any(path.endswith(_WEIGHTS) for path in weights):
        return repository.files([path for path in (_CONFIG,) if path in top] + weights)
    if pickled := next((path for path in top if path.endswith(_PICKLED)), None):
        raise ModelLoadError(
            f"{repository.id} has no *.safetensors, and {pickled} is pickled, which is never "
            "opened here, because unpickling can run any code; ask its authors for safetensors, or "
            "save it as such in a place where you trust it"
        )
    raise ModelNotFoundError(
        f"{repository.id} has no *.safetensors; name the repository of a published head"
    )


def on_disk(repository: str) -> tuple[Path, str] | None:
    """Return the folder and the commit of a checkpoint in the Hub's cache; None without one."""
    for snapshot in store.snapshots(repository):
        if any(snapshot.glob(f"*{_WEIGHTS}")):
            return snapshot, snapshot.name
    return None


def origin_of(repository: str, commit: str) -> Origin:
    """Where a checkpoint of the Hub is from."""
    return Origin(repository.rpartition("/")[2], repository, commit)
