"""Locate: from whatever a model is called to the file on this disk."""

import difflib
from collections.abc import Iterable
from pathlib import Path

from localspec.errors import ModelNotFoundError
from localspec.hub import store
from localspec.hub.reference import Reference, Repository, repository
from localspec.models import registry
from localspec.models.registry import Pair


def locate(name: str | Path, others: Iterable[str] = ()) -> Path:
    """The file of a model: a path, the name of a pair (its target), or `user/repo[:quant]`.

    What exists as a path is that path. Nothing is downloaded. others: what else could have been
    meant, for the message. Raises ModelNotFoundError with what to do: how to fetch it, or which
    names come close.
    """
    path = Path(name)
    # A folder that happens to be called like a pair does not hide it.
    if isinstance(name, Path) or path.is_file() or (path.exists() and name not in registry.pairs()):
        return path
    return on_disk(reference_of(name, others), name)


def reference_of(name: str, others: Iterable[str] = ()) -> Reference:
    """What a name that is no path stands for: of a pair, the target. Raises ModelNotFoundError."""
    label, _, quant = name.partition(":")
    pairs = registry.pairs()
    if pair := pairs.get(label) or pairs.get(label.lower()):
        target = pair.target
        if quant and isinstance(target, Repository):
            return Repository(target.id, quant)
        if not quant:
            return target
    if found := repository(name):
        return found
    if name.lower().endswith(".gguf") or "/" in name or "\\" in name:
        raise ModelNotFoundError(f"there is no model file {name}; check the path")
    close = difflib.get_close_matches(label.lower(), [*others, *pairs], n=3, cutoff=0.6)
    if close:
        hint = f"did you mean {' or '.join(close)}?"
    else:
        choices = ", ".join([*others, "a path", "user/repo[:quant]"])
        hint = f"choose {choices}, or a name that localspec ls --all shows"
    raise ModelNotFoundError(f"there is no model {name!r}; {hint}")


def on_disk(reference: Reference, name: str | None = None) -> Path:
    """The file a reference stands for. name: what the user called it.

    Raises ModelNotFoundError when it was not downloaded.
    """
    if isinstance(reference, Path):
        return reference
    path = store.find(reference)
    if path is None:
        raise ModelNotFoundError(
            f"{reference} is not on this machine; localspec pull {name or reference} fetches it"
        )
    return path


def pair_of(target: Path) -> Pair | None:
    """The pair this file is the target of, whatever its quantisation."""
    origin = store.repository_of(target)
    for pair in registry.pairs().values():
        if isinstance(pair.target, Repository):
            if origin == pair.target.id:
                return pair
        elif pair.target.exists() and target.exists() and pair.target.samefile(target):
            return pair
    return None
