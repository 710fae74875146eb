"""Inventory: the models on this disk by the names to use, and which may draft for which."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import ModelNotFoundError
from localspec.hub import store
from localspec.hub.store import Stored
from localspec.models import registry
from localspec.models.reference import Reference
from localspec.models.summaries import Matchmaker, profile_of


@dataclass(frozen=True, slots=True)
class Listed:
    """A model on this disk.

    name: the shortest to use, that of a pair if it is the target of one. drafters: those on this
    disk that are smaller and speak its vocabulary, by their names, the smallest first.
    """

    name: str
    stored: Stored
    drafters: tuple[str, ...]


def listed() -> list[Listed]:
    """Every whole model on this disk."""
    models, aliases, matchmaker = store.models(), _aliases(), Matchmaker()
    names = {each.files[0]: aliases.get(_key(each.files[0]), each.name) for each in models}
    profiles = {each.files[0]: profile_of(each.files) for each in models}
    known = [profile for profile in profiles.values() if profile]
    found = []
    for each in models:
        file = each.files[0]
        profile = profiles[file]
        fitting = matchmaker.drafters(profile, known) if profile else []
        drafters = tuple(names[drafter.file] for drafter in fitting)
        found.append(Listed(names[file], each, drafters))
    return found


def here(reference: Reference | None) -> Path | None:
    """The file of a model, if it is on this disk and no other is meant alike."""
    if isinstance(reference, Path):
        return reference if reference.is_file() else None
    with suppress(ModelNotFoundError):
        return store.find(reference) if reference else None
    return None


def _aliases() -> Mapping[str, str]:
    """The names of pairs by the file of their target."""
    found: dict[str, str] = {}
    for pair in registry.pairs().values():
        if path := here(pair.target):
            found.setdefault(_key(path), pair.name)
    return found


def _key(path: Path) -> str:
    return os.path.abspath(path)
