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
from localspec.hub.partial_files import Part, parts_of
from localspec.hub.reference import Repository
from localspec.hub.removal import Removal, carry_out, removal
from localspec.models.locate import locate, reference_of
from localspec.utils.format import format_bytes


@dataclass(slots=True)
class _Going:
    """What is to go from one repository: files by their paths there, and parts of downloads."""

    files: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would go, and delete nothing.")
def rm(*, names: Sequence[str], yes: bool, dry_run: bool) -> None:
    """Delete models that were fetched from the Hub, and free what only they needed.

    NAME is what `localspec ls` shows; of a pair it is the target. What other models share stays.
    """
    output = Output()
    meant = _by_repository(names)
    planned = _removals(meant)
    for each in planned:
        if dry_run:
            output.data(f"{_about(each)}\n")
        else:
            output.note(_about(each))
    freed = format_bytes(sum(each.freed for each in planned))
    if dry_run:
        output.note(f"{freed} would be freed")
    elif yes or _agreed(freed):
        # While it was asked, a download may have ended.
        for each in _removals(meant):
            carry_out(each)
        output.note(f"{freed} freed")
    else:
        output.note("nothing was deleted")


def _removals(meant: Mapping[str, _Going]) -> list[Removal]:
    return [removal(repository, going.files, going.parts) for repository, going in meant.items()]


def _by_repository(names: Sequence[str]) -> Mapping[str, _Going]:
    """What the names mean. Raises ModelNotFoundError, and InvalidValueError for other files."""
    found: dict[str, _Going] = {}
    for name in names:
        path = Path(name)
        reference = path if path.exists() else reference_of(name)
        if isinstance(reference, Repository):
            if "/" in name:
                _require_one(reference)
            if parts := _begun(reference):
                found.setdefault(reference.id, _Going()).parts += parts
                continue
            reference = locate(name)
        repository, files = _model_at(reference, name)
        found.setdefault(repository, _Going()).files += files
    return found


def _require_one(wanted: Repository) -> None:
    """Without a quantisation, only the one model there is can be meant: no choice is made here."""
    found = store.of_repository(wanted.id)
    if wanted.quant is None and len(found) > 1:
        names = " ".join(each.name for each in found)
        raise ModelNotFoundError(
            f"several models of {wanted} are here; name those to delete: {names}"
        )


def _begun(wanted: Repository) -> list[Part]:
    """The parts of a model that is not here whole; of all, where no quantisation is named."""
    if store.find(wanted):
        return []
    parts = parts_of(wanted.id)
    if wanted.quant is None:
        return parts
    return [part for part in parts if (part.model or "").lower() == str(wanted).lower()]


def _model_at(path: Path, name: str) -> tuple[str, Sequence[str]]:
    """The repository a file of a revision is from, and every file of its model there."""
    repository = store.repository_of(path) or ""
    revisions = store.folder_of(repository) / "snapshots"
    absolute = Path(os.path.abspath(path))
    if absolute.is_relative_to(revisions):
        file = Path(*absolute.relative_to(revisions).parts[1:]).as_posix()
        for each in store.of_repository(repository):
            if file in each.unit.files:
                return repository, each.unit.files
    raise InvalidValueError(
        f"{name} is no model of the Hub's cache ({store.hub_cache()}), and only those are "
        "deleted; delete a file of your own yourself"
    )


def _about(planned: Removal) -> str:
    """One line: what goes, and what that frees."""
    names = dict.fromkeys(path.name for path in planned.entries or planned.blobs)
    return f"{planned.repository}: {', '.join(names)} ({format_bytes(planned.freed)})"


def _agreed(freed: str) -> bool:
    if not sys.stdin.isatty():
        raise InvalidValueError("nobody can be asked here; --yes deletes without asking")
    return click.confirm(f"Delete, and free {freed}?", err=True)
