"""`localspec pull`: fetch a target and its drafter from the Hub, into its own cache."""

import logging
import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from localspec.cli.interrupt import INTERRUPTED, cancelling, on_interrupt
from localspec.cli.output import Output, joined
from localspec.cli.pull_output import Silence, display_for
from localspec.errors import HubError, ModelNotFoundError
from localspec.gguf.files import files_of
from localspec.hub import store
from localspec.hub.cache_layout import free_space
from localspec.hub.download import download, present, require_space
from localspec.hub.listing import RemoteModel, look_up
from localspec.hub.reference import Reference, Repository
from localspec.hub.store import hub_cache
from localspec.models import locate
from localspec.models.pair_finder import pair_of
from localspec.models.registry import Pair
from localspec.utils.format import format_bytes

_AUTO, _NONE = "auto", "none"


@dataclass(frozen=True, slots=True)
class Part:
    """A model of what is pulled: the target, or its drafter.

    remote: what the Hub says of it; None where it need not be asked, as all of it is on this disk.
    paths: its files on this disk, as far as they are known.
    """

    role: str
    remote: RemoteModel | None
    paths: tuple[Path, ...] = ()

    @property
    def missing(self) -> int:
        """Bytes to fetch."""
        return self.remote.size - present(self.remote) if self.remote else 0


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
    _quieten_the_hub()
    parts, remark = _parts(_wanted(name, draft, output))
    missing = sum(part.missing for part in parts)
    for line in map(_about, parts) if missing else [f"{name} is here already{remark}"]:
        output.note(line)
    if dry_run and missing:
        room = f"{format_bytes(free_space())} are free in {hub_cache()}"
        output.note(f"{format_bytes(missing)} would be fetched, and {room}")
    if not dry_run:
        try:
            parts = _fetched(parts)
        except KeyboardInterrupt:
            output.note("what was fetched is kept; run the same command again to go on")
            return INTERRUPTED
    if as_json:
        output.record(_record(name, parts, missing, dry_run=dry_run))
    else:
        output.data("".join(f"{path}\n" for part in parts for path in part.paths))
    if missing and not dry_run:
        output.note(f"next: {_next_command(name, draft)}")
    return 0


def _wanted(name: str, draft: str, output: Output) -> dict[str, Reference]:
    """The models that are meant, by their role; why no drafter is among them is said."""
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


def _parts(wanted: Mapping[str, Reference]) -> tuple[list[Part], str]:
    """Every model looked up; or else all of them found here, and a remark that this is so."""
    try:
        return [_part(role, reference) for role, reference in wanted.items()], ""
    except HubError:
        here = [Part(role, None, _on_disk(reference)) for role, reference in wanted.items()]
        if not all(part.paths for part in here):
            raise
        return here, "; the Hub could not be asked for anything newer"


def _part(role: str, reference: Reference) -> Part:
    if isinstance(reference, Repository):
        return Part(role, look_up(reference))
    return Part(role, None, _on_disk(reference))


def _on_disk(reference: Reference) -> tuple[Path, ...]:
    """The files of a model that is here whole, several if it is split; else none."""
    if isinstance(reference, Repository):
        first = store.find(reference)
        return files_of(first) if first else ()
    if not reference.is_file():
        raise ModelNotFoundError(f"there is no model file {reference}; check the path")
    return files_of(reference)


def _about(part: Part) -> str:
    """One line: the file that was chosen, and how much of it is here."""
    model = part.remote
    if model is None:
        return f"{part.role}: {part.paths[0]} is here already"
    more = f" and {len(model.files) - 1} more" if len(model.files) > 1 else ""
    here = model.size - part.missing
    state = f"{format_bytes(here)} of it here already" if here else ""
    if not part.missing:
        state = "here already"
    facts = [model.unit.first + more, model.unit.quant or "", format_bytes(model.size)]
    return f"{part.role}: {joined([*facts, model.repository.id, state])}"


def _fetched(parts: Sequence[Part]) -> list[Part]:
    """All of it on this disk. Raises KeyboardInterrupt."""
    models = [part.remote for part in parts if part.remote]
    require_space(models)
    cancel = threading.Event()
    shown = display_for(models) if any(part.missing for part in parts) else Silence()
    with on_interrupt(cancelling(cancel)), shown:
        first = iter(download(models, shown, cancel.is_set))
    return [replace(part, paths=files_of(next(first))) if part.remote else part for part in parts]


def _record(name: str, parts: Sequence[Part], missing: int, *, dry_run: bool) -> dict[str, Any]:
    """The object `--json` prints. missing: bytes that were not on this disk."""
    return {
        "name": name,
        "models": [_part_record(part) for part in parts],
        "missing": missing,
        "fetched": 0 if dry_run else missing,
    }


def _part_record(part: Part) -> dict[str, Any]:
    model = part.remote
    if model:
        sizes = {file.path: file.size for file in model.files}
    else:
        sizes = {path.name: path.stat().st_size for path in part.paths}
    return {
        "role": part.role,
        "repository": model.repository.id if model else None,
        "quant": model.unit.quant if model else None,
        "commit": model.commit if model else None,
        "files": [*sizes],
        "sizes": [*sizes.values()],
        "paths": [str(path) for path in part.paths],
    }


def _next_command(name: str, draft: str) -> str:
    drafter = [] if draft in (_AUTO, _NONE) else ["--draft", draft]
    return f'{shlex.join(["localspec", "generate", "-m", name, *drafter])} "..."'


def _quieten_the_hub() -> None:
    """Keep its advice and its warnings off the screen, unless more was asked for."""
    logger = logging.getLogger("huggingface_hub")
    if logger.level == logging.WARNING:
        logger.setLevel(logging.ERROR)
