"""`localspec pull`: fetch a target and what goes with it from the Hub, into its own cache."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import click

from localspec.cli.fetch import fetch, quieten_hub, waits_told
from localspec.cli.output import Output
from localspec.cli.pull_member import Member, Members, about, drafters_of, renamed
from localspec.cli.pull_members import (
    chosen_members,
    heads_note,
    record_name,
    record_pair,
    remove_outdated,
)
from localspec.cli.pull_others import pull_others
from localspec.cli.pull_projector import AUTO
from localspec.errors import LocalspecError
from localspec.gguf.files import files_of
from localspec.hub.address import without_login
from localspec.hub.cache_layout import free_space, has_changed
from localspec.hub.reference import Repository
from localspec.hub.store import find, hub_cache
from localspec.models.kinds import KINDS
from localspec.models.own_drafters import is_drafter
from localspec.utils.exit_codes import INTERRUPTED
from localspec.utils.format import format_bytes
from localspec.utils.shell import command_line


@click.command()
@click.argument("name", required=False)
@click.option(
    "--drafter",
    "--draft",
    "wanted",
    default=AUTO,
    show_default=True,
    metavar=f"auto|none|{'|'.join(KINDS)}|NAME|FILE",
    help="Which drafter to fetch, too: a kind, the name of a model, or a file of the target's "
    "repository. `auto` is the first one that models.toml names for the target and that this "
    "version drives, else the best one that lies beside it.",
)
@click.option(
    "--mmproj",
    default=AUTO,
    show_default=True,
    metavar="auto|none|FILE",
    help="Which file that reads images and sounds for the target to fetch, too: a file of its "
    "repository. `auto` is the best one there, if there is any: F16 before BF16, Q8_0 and F32.",
)
@click.option(
    "--from",
    "source",
    metavar="FOLDER|ollama|lmstudio|llama.cpp",
    help="Import models that another tool has on this disk: NAME, or all. They are linked, not "
    "copied, and nothing is fetched. `localspec ls --others` lists them.",
)
@click.option("--dry-run", is_flag=True, help="List what would be fetched, and fetch nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, not paths.")
def pull(
    *,
    name: str | None,
    wanted: str,
    mmproj: str,
    source: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Fetch a model and its drafter from the Hub, or import what another tool has.

    NAME is the name of a pair in models.toml, user/repo[:quant], or the address of a repository or
    a file on the Hub. pair:quant fetches the pair's target in another quantisation. Files that are
    already on this machine are not fetched again.
    """
    output = Output()
    if source is None:
        if name is None:
            raise click.UsageError("Missing argument 'NAME'", click.get_current_context())
        with waits_told(output):
            return _pull(output, name, wanted, mmproj, dry_run=dry_run, as_json=as_json)
    if wanted != AUTO:
        raise click.UsageError(
            "--drafter fetches from the Hub, and --from imports; pull the drafter by itself",
            click.get_current_context(),
        )
    if mmproj != AUTO:
        raise click.UsageError(
            "--mmproj is for the Hub, and --from imports what belongs to a model; leave it out",
            click.get_current_context(),
        )
    return pull_others(output, source, name, dry_run=dry_run, as_json=as_json)


def _pull(
    output: Output, name: str, wanted: str, mmproj: str, *, dry_run: bool, as_json: bool
) -> int:
    """Fetch a model and what goes with it from the Hub; return the exit code."""
    quieten_hub()
    name = name if os.path.isfile(name) else without_login(name)
    chosen = chosen_members(name, wanted, mmproj)
    members = chosen.found
    missing = sum(member.missing for member in members)
    for note in _first_notes(name, chosen, missing):
        output.note(note)
    if dry_run and missing:
        room = f"{format_bytes(free_space())} are free in {hub_cache()}"
        output.note(f"{format_bytes(missing)} would be fetched, and {room}")
    if not dry_run:
        try:
            members = _completed(output, name, wanted, members)
        except KeyboardInterrupt:
            return INTERRUPTED
    if as_json:
        output.record(_record(name, members, missing, dry_run=dry_run))
    else:
        output.data("".join(f"{path}\n" for member in members for path in member.paths))
    if missing and not dry_run:
        output.note(f"next: {_next_command(name, wanted, members)}")
    return 0


def fetch_named(output: Output, name: str, wanted: str) -> None:
    """Fetch a model and what goes with it, as `localspec pull NAME` does; stdout stays empty.

    wanted: of the drafter, as of `chosen_members`.

    Raises KeyboardInterrupt where the user stops it, HubError and ModelNotFoundError.
    """
    quieten_hub()
    with waits_told(output):
        chosen = chosen_members(name, wanted, AUTO)
        missing = sum(member.missing for member in chosen.found)
        for note in _first_notes(name, chosen, missing):
            output.note(note)
        _completed(output, name, wanted, chosen.found)


def _completed(output: Output, name: str, wanted: str, members: Sequence[Member]) -> list[Member]:
    """Fetch what is missing and record it; return the models with their files."""
    for line in remove_outdated(members):
        output.note(line)
    try:
        members = _fetched(output, members)
    except KeyboardInterrupt:
        output.note("what was fetched is kept; run the same command again to continue")
        raise
    record_name(name, members)
    if pair := record_pair(wanted, members):
        output.note(pair)
    if elsewhere := heads_note(members):
        output.note(elsewhere)
    return members


def _first_notes(name: str, chosen: Members, missing: int) -> Iterator[str]:
    """Yield what was chosen, how much of it is here, and what has changed. missing: in bytes."""
    yield from chosen.notes
    for each in chosen.found:
        if each.gone:
            yield f"{each.name} is taken as it is here: {each.gone}"
        if line := renamed(each):
            yield line
    yield from map(about, chosen.found) if missing else [f"{name} is here already{chosen.remark}"]
    for remote in (member.remote for member in chosen.found if member.missing):
        if remote and has_changed(remote):
            yield (
                f"{remote.repository} has changed on the Hub since it was pulled; what is here is "
                "used until the new files are complete, and stays"
            )


def _fetched(output: Output, members: Sequence[Member]) -> list[Member]:
    """Fetch what is missing; return the models with their files. Raises KeyboardInterrupt."""
    wanted = [member.remote for member in members if member.remote]
    try:
        paths = fetch(wanted)
    except LocalspecError as error:
        # A cache that cannot be written is of use as long as nothing is missing in it.
        names = [Repository(each.repository.id, each.names.first) for each in wanted]
        paths = [path for path in map(find, names) if path]
        if any(member.missing for member in members) or len(paths) < len(wanted):
            raise
        output.note(f"{error}; what is here is used")
    first = iter(paths)
    return [replace(each, paths=files_of(next(first))) if each.remote else each for each in members]


def _record(name: str, members: Sequence[Member], missing: int, *, dry_run: bool) -> dict[str, Any]:
    """Return the object that `--json` prints. missing: bytes that were not on this disk."""
    return {
        "name": name,
        "models": [_member_record(member) for member in members],
        "missing": missing,
        "fetched": 0 if dry_run else missing,
    }


def _member_record(member: Member) -> dict[str, Any]:
    model = member.remote
    if model:
        sizes = {file.path: file.size for file in model.files}
    else:
        sizes = {path.name: path.stat().st_size for path in member.paths}
    return {
        "role": member.role,
        "kind": member.kind,
        "repository": model.repository.id if model else None,
        "quant": model.names.quant if model else None,
        "commit": model.commit if model else None,
        "files": [*sizes],
        "sizes": [*sizes.values()],
        "paths": [str(path) for path in member.paths],
    }


def _next_command(name: str, wanted: str, members: Sequence[Member]) -> str:
    # A drafter that was named by itself is the one of `auto` now.
    of_kind = [each.name for each in drafters_of(members) if wanted in KINDS]
    drafter = ["--draft", f"suffix,{of_kind[0]}"] if of_kind else []
    if is_drafter(members[0].path_in_repository):
        return f'{command_line(["localspec", "generate", "-m", "TARGET", "--draft", name])} "..."'
    return f'{command_line(["localspec", "generate", "-m", name, *drafter])} "..."'
