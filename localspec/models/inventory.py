"""The inventory: all models on this disk, the names to use, and the drafters that fit each."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localspec.gguf.files import sidecar_kind
from localspec.hub import store
from localspec.hub.store import StoredModel
from localspec.imports import links
from localspec.models import registry
from localspec.models.bundled_files import bundled_files, name_of
from localspec.models.locate import find_file
from localspec.models.own_drafters import own_drafters
from localspec.models.pair_finder import DrafterFinder
from localspec.models.projectors import projector_beside
from localspec.models.summaries import ModelSummary, summary_of
from localspec.models.trained_drafters import all_trained
from localspec.utils.last_use import last_use
from localspec.utils.paths import real_path


@dataclass(frozen=True, slots=True)
class InventoryEntry:
    """A model on this disk.

    name: the shortest name to use; the name of a pair for the target of one. drafters: the names of
    its own drafters on this disk that this version drives, then of the smaller models that share
    its vocabulary, the smallest first. kind: of a sidecar, which drafts for its target only.
    projector: the file that reads images or sounds for it.
    """

    name: str
    stored: StoredModel
    drafters: tuple[str, ...]
    kind: str | None = None
    projector: Path | None = None

    @property
    def last_use(self) -> float | None:
        """When localspec loaded it last, in seconds since 1970; None where that is not known."""
        return last_use(self.stored.blobs)


def model_inventory() -> list[InventoryEntry]:
    """Return every complete model on this disk, those of the Hub's cache first.

    Raises InvalidValueError for a user's models.toml that cannot be used.
    """
    models, pair_names = all_models(), _pair_names()
    names = {
        model.files[0]: pair_names.get(_absolute(model.files[0]), model.name) for model in models
    }
    summaries = {model.files[0]: summary_of(model.files) for model in models}
    finder = DrafterFinder(summary for summary in summaries.values() if summary)
    entries = []
    for model in models:
        summary = summaries[model.files[0]]
        drafters = _drafters(summary, finder, names) if summary else ()
        kind = None if summary else sidecar_kind(model.names.first)
        projector = projector_beside(model.files[0]) if summary else None
        entries.append(InventoryEntry(names[model.files[0]], model, drafters, kind, projector))
    return entries


def _drafters(
    target: ModelSummary, finder: DrafterFinder, names: Mapping[Path, str]
) -> tuple[str, ...]:
    own = [
        each.kind if each.reference is None else names.get(each.file, each.typed)
        for each in own_drafters(target.file, target)
        if each.file
    ]
    smaller = [names[drafter.file] for drafter in finder.drafters_for(target)]
    return tuple(dict.fromkeys([*own, *smaller]))


def all_models() -> list[StoredModel]:
    """Return the models of the Hub's cache, the imported, of models.toml, bundled, and trained.

    Raises InvalidValueError for a user's models.toml that cannot be used.
    """
    named = [
        path
        for pair in registry.pairs().values()
        for path in pair.files
        if isinstance(path, Path) and os.path.isfile(path)
    ]
    trained = [each.file for each in all_trained()]
    files = {real_path(path): path for path in [*named, *bundled_files(), *trained]}
    outside = [path for path in files.values() if not store.repository_of(path)]
    local = [store.local_model(path, name_of(path)) for path in outside]
    return [*store.models(), *links.imported(), *local]


def _pair_names() -> Mapping[str, str]:
    """Return the names of pairs by the absolute path of their target."""
    found: dict[str, str] = {}
    for pair in registry.pairs().values():
        if path := find_file(pair.target):
            found.setdefault(_absolute(path), pair.name)
    return found


def _absolute(path: Path) -> str:
    return os.path.abspath(path)
