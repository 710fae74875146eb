"""Inventory: the models on this disk by the names to use, and which may draft for which."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import ModelNotFoundError
from localspec.hub import store
from localspec.hub.reference import Reference
from localspec.hub.store import Stored
from localspec.models import registry
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
    stored, aliases, matchmaker = models(), _aliases(), Matchmaker()
    names = {each.files[0]: aliases.get(_key(each.files[0]), each.name) for each in stored}
    profiles = {each.files[0]: profile_of(each.files) for each in stored}
    known = [profile for profile in profiles.values() if profile]
    found = []
    for each in stored:
        file = each.files[0]
        profile = profiles[file]
        fitting = matchmaker.drafters(profile, known) if profile else []
        drafters = tuple(names[drafter.file] for drafter in fitting)
        found.append(Listed(names[file], each, drafters))
    return found


def models() -> list[Stored]:
    """Every whole model on this disk: the Hub's cache, files that models.toml names, bundled ones.

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
    return [*store.models(), *map(store.local, outside)]


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
