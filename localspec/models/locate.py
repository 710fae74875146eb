"""Locate models: from the name that a user gives to a file on this disk."""

import difflib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from localspec.errors import ModelNotFoundError
from localspec.hub import store
from localspec.hub.reference import Reference, Repository, repository
from localspec.models import registry


def locate(name: str | Path, others: Iterable[str] = ()) -> Path:
    """Return the (first) file of a model; nothing is downloaded.

    name: a path, a pair (whose target is meant), or `user/repo[:quant]`; a path that exists comes
    first. others: further words that are valid here, which the error message then offers.
    Raises ModelNotFoundError that says how to download the model, or which names are similar.
    """
    path = Path(name)
    # A folder with the name of a pair does not hide the pair.
    if isinstance(name, Path) or path.is_file() or (path.exists() and name not in registry.pairs()):
        return path
    return require_file(reference_of(name, others), name)


def reference_of(name: str, others: Iterable[str] = ()) -> Reference:
    """Return the model that a name means which is no path; of a pair, the target.

    others: as in `locate`. Raises ModelNotFoundError for a name that means no model.
    """
    label, _, quant = name.partition(":")
    if pair := registry.pair_named(name):
        target = pair.target
        if quant and isinstance(target, Repository):
            return Repository(target.id, quant)
        if not quant:
            return target
    if found := repository(name):
        return found
    if name.lower().endswith(".gguf") or "/" in name or "\\" in name:
        raise ModelNotFoundError(f"there is no model file {name}; check the path")
    known = [*others, *registry.pairs()]
    close = difflib.get_close_matches(label.lower(), known, n=3, cutoff=0.6)
    if close:
        hint = f"did you mean {' or '.join(close)}?"
    else:
        choices = ", ".join([*others, "a path", "user/repo[:quant]"])
        hint = f"choose {choices}, or a name that localspec ls --all shows"
    raise ModelNotFoundError(f"there is no model {name!r}; {hint}")


def find_file(reference: Reference | None) -> Path | None:
    """Return the (first) file of a model; None where it is not on disk, or not unique."""
    if isinstance(reference, Path):
        return reference if reference.is_file() else None
    with suppress(ModelNotFoundError):
        return store.find(reference) if reference else None
    return None


def require_file(reference: Reference, name: str | None = None) -> Path:
    """Return the (first) file of a model. name: what the user called the model.

    Raises ModelNotFoundError for a repository's model that was not downloaded, or is not unique.
    """
    if isinstance(reference, Path):
        return reference
    path = store.find(reference)
    if path is None:
        raise ModelNotFoundError(
            f"{reference} is not on this machine; localspec pull {name or reference} fetches it"
        )
    return path
