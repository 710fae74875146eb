"""Locate models: from the name that a user gives to a file on this disk."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from localspec.errors import ModelNotFoundError
from localspec.gguf.files import ModelFiles, labels_meant
from localspec.hub import store
from localspec.hub.address import without_login
from localspec.hub.reference import (
    Reference,
    Repository,
    meant_repository,
    named_repository,
)
from localspec.imports import links
from localspec.imports.collection import OLLAMA
from localspec.models import registry
from localspec.models.bundled_files import bundled_files, bundled_named
from localspec.models.trained_drafters import trained_named
from localspec.utils.similar_names import did_you_mean


def locate(name: str | Path, others: Iterable[str] = ()) -> Path:
    """Return the (first) file of a model; nothing is downloaded.

    name: a path, a pair (whose target is meant), an imported model, or `user/repo[:quant]`; a path
    that exists comes first, and a tag that was imported from Ollama stands in for the pair that it
    names while that is not here. others: further words that are valid here, which the error message
    then offers. Raises ModelNotFoundError that says how to download the model, or which names are
    similar.
    """
    path = Path(name)
    # A folder with the name of a pair does not hide the pair. os.path takes names of any length.
    if isinstance(name, Path) or os.path.isfile(name):
        return path
    if os.path.exists(name) and name not in registry.pairs():
        return path
    reference = reference_of(name, others)
    is_away = isinstance(reference, Repository) and find_meant(reference) is None
    imported = _imported_tag(name) if is_away else None
    return imported or require_file(reference, without_login(name))


def _imported_tag(name: str) -> Path | None:
    """Return the model that was imported from Ollama under a tag which names a pair, too."""
    if ":" in name and registry.pair_and_quant(name):
        with suppress(ModelNotFoundError):
            return links.find(f"{OLLAMA}:{name}")
    return None


def reference_of(name: str, others: Iterable[str] = ()) -> Reference:
    """Return the model that a name means which is no path; of a pair, the target.

    others: as in `locate`. Raises ModelNotFoundError for a name that means no model.
    """
    if not name.strip():
        raise ModelNotFoundError(f"the name of a model is {name!r}; localspec ls --all shows some")
    if found := registry.pair_and_quant(name):
        pair, quant = found
        target = pair.target
        if quant and isinstance(target, Repository):
            return Repository(target.id, quant)
        if not quant:
            return target
    here = links.find(name) or bundled_named(name) or _made_here(name)
    if model := here or named_repository(name):
        return model
    if name.lower().endswith(".gguf") or "/" in name or "\\" in name:
        meant = meant_repository(name)
        hint = f", or write {meant} for one of the Hub" if meant else ""
        raise ModelNotFoundError(f"there is no model file {name}; check the path{hint}")
    known = [*others, *registry.pairs(), *(file.stem for file in bundled_files())]
    label = name.partition(":")[0]
    hint = did_you_mean(name.replace(":", "-", 1), known) or did_you_mean(label, known)
    if not hint:
        choices = ", ".join([*others, "a path", "user/repo[:quant]"])
        hint = f"choose {choices}, or a name that localspec ls --all shows"
    raise ModelNotFoundError(f"there is no model {name!r}; {hint}")


def _made_here(name: str) -> Path | None:
    """Find a drafter that was trained or trimmed here by the name of its file.

    Raises ModelNotFoundError where several have it.
    """
    files = sorted({each.file for each in trained_named(name)})
    if len(files) > 1:
        paths = ", ".join(map(str, files))
        raise ModelNotFoundError(f"several drafters are called {name!r}; name one of {paths}")
    return files[0] if files else None


def find_file(reference: Reference | None) -> Path | None:
    """Return the (first) file of a model; None where it is not on disk, or not unique."""
    if isinstance(reference, Path):
        return reference if os.path.isfile(reference) else None
    with suppress(ModelNotFoundError):
        return find_meant(reference) if reference else None
    return None


def require_file(reference: Reference, name: str | None = None) -> Path:
    """Return the (first) file of a model. name: what the user called the model.

    Raises ModelNotFoundError for a repository's model that was not downloaded, or is not unique.
    """
    if isinstance(reference, Path):
        return reference
    path = find_meant(reference)
    if path is None:
        raise ModelNotFoundError(
            f"{reference} is not on this machine; localspec pull {name or reference} fetches it"
        )
    return path


def find_exactly(wanted: Repository) -> Path | None:
    """Return the file of a repository's model: as it was fetched, else as it was imported.

    The beginning of a quantisation is none. Raises ModelNotFoundError where it is not unique.
    """
    return store.find(wanted) or links.find_repository(wanted)


def beginning_so(wanted: Repository) -> list[str]:
    """Return the quantisations on this machine that begin as the wanted one, the best first."""
    known = store.quants_of(wanted.id) | links.quants_of(wanted.id)
    return labels_meant(wanted.quant, known) if wanted.quant else []


def find_meant(wanted: Repository) -> Path | None:
    """Return the file of a repository's model, else of the best one whose name begins so.

    Raises ModelNotFoundError where it is not unique.
    """
    if path := find_exactly(wanted):
        return path
    meant = (Repository(wanted.id, label) for label in beginning_so(wanted))
    return next(filter(None, map(find_exactly, meant)), None)


def meaning_note(name: str | Path, path: Path) -> str | None:
    """Say which file was taken where a name has only the beginning of a quantisation.

    And where the tag of a pair that is not here is that of an imported model.
    """
    if _imported_tag(str(name)) == path:
        imported = f"{OLLAMA}:{name} here, which was imported"
        return f"{name} is {imported}; the pair is not on this machine"
    reference = None if os.path.exists(name) else reference_of(str(name))
    if not isinstance(reference, Repository) or reference.quant is None:
        return None
    if not labels_meant(reference.quant, [ModelFiles((path.as_posix(),)).quant]):
        return None
    return f"{name} is {path.name} here, the best quantisation that begins so"
