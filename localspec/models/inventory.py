"""The inventory: all models on this disk, the names to use, and the drafters that fit each."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localspec.hub import store
from localspec.hub.store import StoredModel
from localspec.models import registry
from localspec.models.locate import find_file
from localspec.models.pair_finder import DrafterFinder
from localspec.models.summaries import summary_of


@dataclass(frozen=True, slots=True)
class InventoryEntry:
    """A model on this disk.

    name: the shortest name to use; the name of a pair for the target of one. drafters: the names of
    the smaller models on this disk that share its vocabulary, the smallest first.
    """

    name: str
    stored: StoredModel
    drafters: tuple[str, ...]


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
        drafters = finder.drafters_for(summary) if summary else ()
        drafter_names = tuple(names[drafter.file] for drafter in drafters)
        entries.append(InventoryEntry(names[model.files[0]], model, drafter_names))
    return entries


def all_models() -> list[StoredModel]:
    """Return the models in the Hub's cache, then other files of models.toml, then the bundled ones.

    Raises InvalidValueError for a user's models.toml that cannot be used.
    """
    named = [
        path
        for pair in registry.pairs().values()
        for path in (pair.target, pair.drafter)
        if isinstance(path, Path) and os.path.isfile(path)
    ]
    files = {path.resolve(): path for path in [*named, *registry.bundled()]}
    outside = [path for path in files.values() if not store.repository_of(path)]
    return [*store.models(), *map(store.local_model, outside)]


def _pair_names() -> Mapping[str, str]:
    """Return the names of pairs by the absolute path of their target."""
    found: dict[str, str] = {}
    for pair in registry.pairs().values():
        if path := find_file(pair.target):
            found.setdefault(_absolute(path), pair.name)
    return found


def _absolute(path: Path) -> str:
    return os.path.abspath(path)
