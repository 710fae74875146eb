"""Candidates: which models might draft for a target, of those on this disk and in models.toml."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.gguf.check import check_generative
from localspec.gguf.facts import Facts, facts_of
from localspec.hub.reference import Reference, Repository
from localspec.models import inventory, locate, registry
from localspec.models.compatibility import checks
from localspec.models.registry import Pair
from localspec.models.speed_up import Measured, Outlook, bytes_read, outlook
from localspec.models.vocabulary_match import Check, failure

# What was measured of a target and a drafter.
Evidence = Callable[[Facts, Facts], Measured]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model on this disk that is smaller than the target. name: what to call it."""

    name: str
    model: Facts
    failed: Check | None
    outlook: Outlook

    @property
    def drafts(self) -> bool:
        """Whether it fits, and gains anything."""
        return self.failed is None and self.outlook.pays


def model_at(path: Path) -> Facts:
    """A model that generates text. Raises ModelNotFoundError or ModelLoadError."""
    check_generative(path)
    return facts_of(path)


def on_disk(target: Facts, evidence: Evidence, context: int | None = None) -> list[Candidate]:
    """Every smaller model: those that draft first, the most promising of them first."""
    found = []
    for stored in inventory.models():
        try:
            model = model_at(stored.files[0])
        except LocalspecError:
            continue  # an encoder, an embedding model: nothing that could draft
        if bytes_read(model, 1) < bytes_read(target, 1):
            failed = failure(checks(target, model, context))
            promise = outlook(target, model, evidence(target, model))
            found.append(Candidate(stored.name, model, failed, promise))
    found.sort(key=lambda each: (each.drafts, each.outlook.low + each.outlook.high), reverse=True)
    return found


def pair_for(wanted: Reference) -> Pair | None:
    """The pair of models.toml whose target this is, in whatever quantisation."""
    return next((pair for pair in registry.pairs().values() if _is_same(pair.target, wanted)), None)


def pair_of(target: Facts) -> Pair | None:
    """The pair of models.toml a model is the target of, by its file or else by its name."""
    return locate.pair_of(target.files[0]) or next(
        (pair for pair in registry.pairs().values() if _is_named_like(target, pair)), None
    )


def _is_same(one: Reference, other: Reference) -> bool:
    if isinstance(one, Repository) and isinstance(other, Repository):
        return one.id == other.id
    return one == other


def _is_named_like(target: Facts, pair: Pair) -> bool:
    if not isinstance(pair.target, Repository):
        return False
    wanted = _plain(pair.target.id.partition("/")[2]).removesuffix("-gguf")
    names = (target.files[0].stem, target.text("general.name") or "")
    return any(f"{_plain(name)}-".startswith(f"{wanted}-") for name in names)


def _plain(name: str) -> str:
    """A name as far as people agree on how to write it."""
    return re.sub(r"[\s_-]+", "-", name.lower())
