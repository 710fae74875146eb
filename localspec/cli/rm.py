"""`localspec rm`: delete models from the Hub's cache."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from localspec.cli.output import Output
from localspec.errors import InvalidValueError, ModelNotFoundError
from localspec.hub import store
from localspec.hub.partial_files import PartialFile, partial_files
from localspec.hub.reference import Repository
from localspec.hub.removal import RemovalPlan, plan_removal, remove
from localspec.models.locate import locate, reference_of
from localspec.utils.format import format_bytes


@dataclass(slots=True)
class _Selection:
    """What to delete of one repository: files by their paths in it, and interrupted downloads."""

    files: list[str] = field(default_factory=list)
    parts: list[PartialFile] = field(default_factory=list)


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would go, and delete nothing.")
def rm(*, names: Sequence[str], yes: bool, dry_run: bool) -> None:
    """Delete models that were fetched from the Hub, and free what only they needed.

    NAME is what `localspec ls` shows; of a pair it is the target. What other models share stays.
    """
    output = Output()
    selected = _by_repository(names)
    planned = _removals(selected)
    for each in planned:
        if dry_run:
            output.data(f"{_about(each)}\n")
        else:
            output.note(_about(each))
    freed = format_bytes(sum(each.freed for each in planned))
    if dry_run:
        output.note(f"{freed} would be freed")
    elif yes or _agreed(freed):
        # A download may have ended while the user was asked.
        for each in _removals(selected):
            remove(each)
        output.note(f"{freed} freed")
    else:
        output.note("nothing was deleted")


def _removals(selected: Mapping[str, _Selection]) -> list[RemovalPlan]:
    return [
        plan_removal(repository, each.files, each.parts) for repository, each in selected.items()
    ]


def _by_repository(names: Sequence[str]) -> Mapping[str, _Selection]:
    """Return what the names stand for.

    Raises ModelNotFoundError, and InvalidValueError for files outside the Hub's cache.
    """
    found: dict[str, _Selection] = {}
    for name in names:
        path = Path(name)
        reference = path if path.exists() else reference_of(name)
        if isinstance(reference, Repository):
            if "/" in name:
                _require_one(reference)
            if parts := _interrupted(reference):
                found.setdefault(reference.id, _Selection()).parts += parts
                continue
            reference = locate(name)
        repository, files = _model_at(reference, name)
        found.setdefault(repository, _Selection()).files += files
    return found


def _require_one(wanted: Repository) -> None:
    """Refuse a repository without a quantisation of which several models are here."""
    found = store.models_of(wanted.id)
    if wanted.quant is None and len(found) > 1:
        names = " ".join(each.name for each in found)
        raise ModelNotFoundError(
            f"several models of {wanted} are here; name those to delete: {names}"
        )


def _interrupted(wanted: Repository) -> list[PartialFile]:
    """Return the interrupted downloads of a model that is not complete on this disk.

    Of all models of the repository, where no quantisation is named.
    """
    if store.find(wanted):
        return []
    parts = partial_files(wanted.id)
    if wanted.quant is None:
        return parts
    return [part for part in parts if (part.model or "").lower() == str(wanted).lower()]


def _model_at(path: Path, name: str) -> tuple[str, Sequence[str]]:
    """Return the repository that a file in the Hub's cache is from, and its model's files."""
    repository = store.repository_of(path) or ""
    revisions = store.folder_of(repository) / "snapshots"
    absolute = Path(os.path.abspath(path))
    if absolute.is_relative_to(revisions):
        file = Path(*absolute.relative_to(revisions).parts[1:]).as_posix()
        for each in store.models_of(repository):
            if file in each.names.paths:
                return repository, each.names.paths
    raise InvalidValueError(
        f"{name} is no model of the Hub's cache ({store.hub_cache()}), and only those are "
        "deleted; delete a file of your own yourself"
    )


def _about(planned: RemovalPlan) -> str:
    """Return one line: what is deleted, and the bytes that frees."""
    names = dict.fromkeys(path.name for path in planned.entries or planned.blobs)
    return f"{planned.repository}: {', '.join(names)} ({format_bytes(planned.freed)})"


def _agreed(freed: str) -> bool:
    if not sys.stdin.isatty():
        raise InvalidValueError("nobody can be asked here; --yes deletes without asking")
    return click.confirm(f"Delete, and free {freed}?", err=True)
