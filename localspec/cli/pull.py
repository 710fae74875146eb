"""`localspec pull`: fetch a target and its drafter from the Hub, into its own cache."""

import logging
import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from localspec.cli.interrupt import INTERRUPTED, cancel_first, on_interrupt
from localspec.cli.output import Output, join_facts
from localspec.cli.pull_output import NoDisplay, display_for
from localspec.errors import HubError, ModelNotFoundError
from localspec.gguf.files import files_of
from localspec.hub import store
from localspec.hub.cache_layout import free_space
from localspec.hub.download import bytes_on_disk, download, require_space
from localspec.hub.listing import RemoteModel, look_up
from localspec.hub.reference import Reference, Repository
from localspec.hub.store import hub_cache
from localspec.models import locate
from localspec.models.pair_finder import pair_of
from localspec.models.registry import Pair
from localspec.utils.format import format_bytes

_AUTO, _NONE = "auto", "none"


@dataclass(frozen=True, slots=True)
class Member:
    """A model of the pair that is pulled: the target or the drafter.

    remote: what the Hub says of it; None if it is on this disk and the Hub was not asked.
    paths: its files on this disk; empty until they are fetched.
    """

    role: str
    remote: RemoteModel | None
    paths: tuple[Path, ...] = ()

    @property
    def missing(self) -> int:
        """The number of bytes to fetch."""
        return self.remote.size - bytes_on_disk(self.remote) if self.remote else 0


@click.command()
@click.argument("name")
@click.option(
    "--draft",
    default=_AUTO,
    show_default=True,
    metavar="auto|none|NAME",
    help="The drafter that comes with it; `auto` is the one that models.toml has for the target.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be fetched, and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of paths.")
def pull(*, name: str, draft: str, dry_run: bool, as_json: bool) -> int:
    """Fetch a model and its drafter from the Hub.

    NAME is a pair of models.toml, or user/repo[:quant]; of a pair, name:quant is its target in
    another quantisation. What is on this machine already is not fetched again.
    """
    output = Output()
    _quieten_hub()
    members, remark = _members(_references(name, draft, output))
    missing = sum(member.missing for member in members)
    for line in map(_about, members) if missing else [f"{name} is here already{remark}"]:
        output.note(line)
    if dry_run and missing:
        room = f"{format_bytes(free_space())} are free in {hub_cache()}"
        output.note(f"{format_bytes(missing)} would be fetched, and {room}")
    if not dry_run:
        try:
            members = _fetched(members)
        except KeyboardInterrupt:
            output.note("what was fetched is kept; run the same command again to go on")
            return INTERRUPTED
    if as_json:
        output.record(_record(name, members, missing, dry_run=dry_run))
    else:
        output.data("".join(f"{path}\n" for member in members for path in member.paths))
    if missing and not dry_run:
        output.note(f"next: {_next_command(name, draft)}")
    return 0


def _references(name: str, draft: str, output: Output) -> dict[str, Reference]:
    """Return the models to pull by their role, with a note if no drafter is among them."""
    target = _reference(name)
    if draft == _NONE:
        return {"target": target}
    if draft != _AUTO:
        return {"target": target, "drafter": _reference(draft, [_AUTO, _NONE])}
    pair = pair_of(target, name)
    if pair is None or pair.drafter is None:
        reason = pair.no_drafter if pair else None
        output.note(f"no drafter: {reason or f'none is known for {name}; --draft names one'}")
        return {"target": target}
    if isinstance(target, Repository) and not _names(name, pair):
        output.note(f"{name} is the target of {pair.name}, whose drafter comes with it")
    return {"target": target, "drafter": pair.drafter}


def _reference(name: str, others: Sequence[str] = ()) -> Reference:
    return Path(name) if Path(name).is_file() else locate.reference_of(name, others)


def _names(name: str, pair: Pair) -> bool:
    return name.partition(":")[0].lower() == pair.name.lower()


def _members(references: Mapping[str, Reference]) -> tuple[list[Member], str]:
    """Return every model as the Hub has it; if it cannot be asked, as they are on this disk.

    The text says so in the second case. Raises HubError if not all of them are on this disk.
    """
    try:
        return [_member(role, reference) for role, reference in references.items()], ""
    except HubError:
        here = [Member(role, None, _on_disk(reference)) for role, reference in references.items()]
        if not all(member.paths for member in here):
            raise
        return here, "; the Hub could not be asked for anything newer"


def _member(role: str, reference: Reference) -> Member:
    if isinstance(reference, Repository):
        return Member(role, look_up(reference))
    return Member(role, None, _on_disk(reference))


def _on_disk(reference: Reference) -> tuple[Path, ...]:
    """Return the files of a model that is complete on this disk (several if split), else none."""
    if isinstance(reference, Repository):
        first = store.find(reference)
        return files_of(first) if first else ()
    if not reference.is_file():
        raise ModelNotFoundError(f"there is no model file {reference}; check the path")
    return files_of(reference)


def _about(member: Member) -> str:
    """Return one line: the file that was chosen, and how much of it is here."""
    model = member.remote
    if model is None:
        return f"{member.role}: {member.paths[0]} is here already"
    more = f" and {len(model.files) - 1} more" if len(model.files) > 1 else ""
    here = model.size - member.missing
    state = f"{format_bytes(here)} of it here already" if here else ""
    if not member.missing:
        state = "here already"
    facts = [model.names.first + more, model.names.quant or "", format_bytes(model.size)]
    return f"{member.role}: {join_facts([*facts, model.repository.id, state])}"


def _fetched(members: Sequence[Member]) -> list[Member]:
    """Fetch what is missing; return the models with their files. Raises KeyboardInterrupt."""
    models = [member.remote for member in members if member.remote]
    require_space(models)
    cancel = threading.Event()
    shown = display_for(models) if any(member.missing for member in members) else NoDisplay()
    with on_interrupt(cancel_first(cancel)), shown:
        first = iter(download(models, shown, cancel.is_set))
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
        "repository": model.repository.id if model else None,
        "quant": model.names.quant if model else None,
        "commit": model.commit if model else None,
        "files": [*sizes],
        "sizes": [*sizes.values()],
        "paths": [str(path) for path in member.paths],
    }


def _next_command(name: str, draft: str) -> str:
    drafter = [] if draft in (_AUTO, _NONE) else ["--draft", draft]
    return f'{shlex.join(["localspec", "generate", "-m", name, *drafter])} "..."'


def _quieten_hub() -> None:
    """Keep huggingface_hub's warnings off the screen, unless the user chose its log level."""
    logger = logging.getLogger("huggingface_hub")
    if logger.level == logging.WARNING:
        logger.setLevel(logging.ERROR)
