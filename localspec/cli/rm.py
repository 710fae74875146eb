"""`localspec rm`: delete models from the Hub's cache."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from localspec.cli.confirmation import agreed
from localspec.cli.output import Output
from localspec.errors import InvalidValueError, ModelNotFoundError
from localspec.gguf.files import gguf_files, group_files, labels_meant
from localspec.gguf.projectors import choose_projector, is_projector
from localspec.hub import store
from localspec.hub.partial_files import PartialFile, partial_files
from localspec.hub.reference import Repository
from localspec.hub.removal import RemovalPlan, plan_removal, remove
from localspec.imports import links
from localspec.models import registry
from localspec.models.bundled_files import bundled_files
from localspec.models.locate import beginning_so, find_exactly, reference_of
from localspec.models.pulled_pairs import forget_removed
from localspec.models.trained_drafters import remove_trained, trained_named
from localspec.utils.format import format_bytes
from localspec.utils.paths import real_path


@dataclass(slots=True)
class _Selection:
    """What to delete of one repository: files by their paths in it, and interrupted downloads."""

    files: list[str] = field(default_factory=list)
    parts: list[PartialFile] = field(default_factory=list)


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--yes", is_flag=True, help="Delete without a question.")
@click.option("--dry-run", is_flag=True, help="List what would be deleted, and delete nothing.")
def rm(*, names: Sequence[str], yes: bool, dry_run: bool) -> None:
    """Delete models that were fetched from the Hub, links to imported ones, and trained drafters.

    NAME is a name that `localspec ls` shows. The name of a pair deletes its target, not its
    drafter. What reads images for a model goes with it. Files that another model uses, too, stay,
    and so do those of other tools.
    """
    output = Output()
    imported = [each for name in names for each in links.links_of(name)]
    trained = [each.file for name in names for each in trained_named(name)]
    others = [name for name in names if not (links.links_of(name) or trained_named(name))]
    selected = _by_repository(others)
    planned = _removals(selected)
    say = output.data if dry_run else output.note
    end = "\n" if dry_run else ""
    for path in imported:
        say(f"{path}: a link; the file itself stays where it is{end}")
    for each in planned:
        say(f"{_about(each)}{end}")
    for path in trained:
        say(f"{path}: a drafter that was made here ({format_bytes(path.stat().st_size)}){end}")
    size = sum(path.stat().st_size for path in trained)
    freed = format_bytes(sum(each.freed for each in planned) + size)
    if dry_run:
        output.note(f"{freed} would be freed")
    elif yes or agreed(f"Delete, and free {freed}?"):
        # A download may have ended while the user was asked.
        for each in _removals(selected):
            remove(each)
        forget_removed(selected)
        links.remove(imported)
        for path in trained:
            remove_trained(path)
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
        reference = Path(name) if os.path.exists(name) else reference_of(name)
        if isinstance(reference, Repository):
            if "/" in name:
                _require_one(reference)
            if parts := _interrupted(reference):
                selected = found.setdefault(store.spelled(reference.id), _Selection())
                selected.parts += parts
                continue
            file = find_exactly(reference)
            if file is None and (gone := store.dangling(reference)):
                found.setdefault(store.spelled(reference.id), _Selection()).files += gone
                continue
            if file is None:
                _refuse_beginning(reference)
                raise ModelNotFoundError(
                    f"{reference} is not on this machine, so there is nothing to delete; localspec "
                    "ls lists what is here"
                )
            reference = file
        repository, files = _model_at(reference, name)
        found.setdefault(repository, _Selection()).files += files
    for repository, selected in found.items():
        selected.files += _lone_projectors(repository, selected.files)
    return found


def _lone_projectors(repository: str, going: Sequence[str]) -> list[str]:
    """Return the projectors of a repository that no model needs but those that are deleted.

    going: the files that are deleted.
    """
    paths = {file for each in store.snapshots(repository) for file in gguf_files(each)}
    projectors = sorted(filter(is_projector, paths))
    models = group_files(paths)
    left = [each for each in models if not {*each.paths} <= {*going}]
    if not left:
        return projectors
    needed = {choose_projector(projectors, each.first) for each in left}
    deleted = {choose_projector(projectors, each.first) for each in models if each not in left}
    return [each for each in projectors if each in deleted - needed]


def _require_one(wanted: Repository) -> None:
    """Refuse a repository without a quantisation of which several models are here."""
    found = store.models_of(wanted.id)
    if wanted.quant is None and len(found) > 1:
        names = " ".join(each.name for each in found)
        raise ModelNotFoundError(
            f"several models of {wanted} are here; name those to delete: {names}"
        )


def _refuse_beginning(wanted: Repository) -> None:
    """Refuse the beginning of a quantisation: what is deleted is named in full."""
    begun = ((each.model or "").partition(":")[2] for each in partial_files(wanted.id))
    labels = dict.fromkeys([*beginning_so(wanted), *labels_meant(wanted.quant or "", begun)])
    if names := " ".join(str(Repository(wanted.id, label)) for label in labels):
        raise ModelNotFoundError(
            f"{wanted} is not on this machine, and only whole names are deleted; what begins so: "
            f"{names}"
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
    if real_path(path) in [real_path(file) for file in bundled_files()]:
        size = format_bytes(sum(file.stat().st_size for file in registry.bundled()))
        raise InvalidValueError(
            f"{name!r} comes with localspec and cannot be deleted ({size} with its drafter); "
            "localspec rm deletes what was fetched from the Hub"
        )
    repository = store.repository_of(path) or ""
    revisions = store.folder_of(repository) / "snapshots"
    absolute = Path(os.path.abspath(path))
    if absolute.is_relative_to(revisions):
        file = Path(*absolute.relative_to(revisions).parts[1:]).as_posix()
        for each in store.models_of(repository):
            if file in each.names.paths:
                return repository, each.names.paths
    raise InvalidValueError(
        f"{name!r} is no model of the Hub's cache ({store.hub_cache()}), and only those are "
        "deleted; delete a file of your own yourself"
    )


def _about(planned: RemovalPlan) -> str:
    """Return one line: what is deleted, and the bytes that frees."""
    names = dict.fromkeys(path.name for path in planned.entries or planned.blobs)
    return f"{planned.repository}: {', '.join(names)} ({format_bytes(planned.freed)})"
