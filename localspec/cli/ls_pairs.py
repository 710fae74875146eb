"""What `localspec ls` shows of models.toml: every pair, and whether the Hub still has it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from localspec.cli.interrupt import leave, on_interrupt
from localspec.cli.models_output import table
from localspec.cli.output import Output
from localspec.errors import HubError, LocalspecError, ModelNotFoundError
from localspec.gguf.files import PREFERRED, bytes_of, files_of
from localspec.hub.reference import Repository
from localspec.models import registry
from localspec.models.locate import find_file
from localspec.models.registry import Pair
from localspec.utils.format import format_bytes

_AT_ONCE = 8


def show_pairs(output: Output, *, as_json: bool) -> None:
    """Every pair: what of it is on this disk, and what it is for."""
    pairs = registry.pairs().values()
    if as_json:
        output.record({"pairs": [record_of(pair) for pair in pairs]})
        return
    columns = ("name", "on disk", "size", "parameters", "what it is for")
    output.data(table(columns, [_cells(pair) for pair in pairs], right=["size"]))
    output.note("localspec pull NAME fetches a pair, localspec show NAME tells all of it")


def record_of(pair: Pair) -> dict[str, Any]:
    """A pair for programs: what models.toml says, and which files of it are on this disk."""
    target, drafter = find_file(pair.target), find_file(pair.drafter)
    return {
        "name": pair.name,
        "target": str(pair.target),
        "drafter": str(pair.drafter) if pair.drafter else None,
        "no_drafter": pair.no_drafter,
        "files": {
            "target": str(target) if target else None,
            "drafter": str(drafter) if drafter else None,
        },
        "prompt": pair.prompt,
        "parameters": pair.parameters,
        "context": pair.context,
        "sizes": dict(pair.sizes),
        "licence": pair.licence,
        "note": pair.note,
        "unverified": pair.unverified,
    }


def _cells(pair: Pair) -> tuple[str, ...]:
    target, drafter = find_file(pair.target), find_file(pair.drafter)
    files = [file for path in (target, drafter) if path for file in files_of(path)]
    if target:
        on_disk = "target only" if pair.drafter and not drafter else "yes"
    else:
        on_disk = "drafter only" if drafter else "no"
    size = format_bytes(bytes_of(files)) if on_disk == "yes" else _expected(pair)
    return pair.name, on_disk, size, pair.parameters or "-", pair.note or "-"


def _expected(pair: Pair) -> str:
    """What models.toml says of the size of the target."""
    asked = isinstance(pair.target, Repository) and pair.target.quant
    for quant in [asked] if asked else PREFERRED:
        if quant in pair.sizes:
            return format_bytes(int(1e9 * pair.sizes[quant]))
    return "-"


class _Entry(NamedTuple):
    pair: str
    role: str
    repository: Repository


def show_remote(output: Output, *, as_json: bool) -> int:
    """Whether the Hub has what models.toml names; the exit code."""
    entries = [*_entries()]
    wanted = list(dict.fromkeys(entry.repository for entry in entries))
    with on_interrupt(leave), ThreadPoolExecutor(_AT_ONCE) as pool:
        found = dict(zip(wanted, pool.map(_ask, wanted), strict=True))
    verdicts = [(entry, found[entry.repository]) for entry in entries]
    if as_json:
        output.record({"entries": [_entry_record(*each) for each in verdicts]})
    else:
        rows = [_entry_cells(*each) for each in verdicts]
        output.data(table(("name", "role", "model", "the Hub says"), rows))
    failures = [each.exit_code for each in found.values() if isinstance(each, LocalspecError)]
    output.note(f"{len(found) - len(failures)} of {len(found)} models are there")
    return max(failures, default=0)


def _entries() -> Iterator[_Entry]:
    for pair in registry.pairs().values():
        for role in ("target", "drafter"):
            if isinstance(reference := getattr(pair, role), Repository):
                yield _Entry(pair.name, role, reference)


def _ask(wanted: Repository) -> int | LocalspecError:
    """Bytes of the model, or why it cannot be had."""
    # Only here is the network's client needed.
    from localspec.hub.listing import look_up

    try:
        return look_up(wanted).size
    except (HubError, ModelNotFoundError) as error:
        return error


def _entry_cells(entry: _Entry, verdict: int | LocalspecError) -> tuple[str, ...]:
    said = f"ok, {format_bytes(verdict)}" if isinstance(verdict, int) else str(verdict)
    return entry.pair, entry.role, str(entry.repository), said


def _entry_record(entry: _Entry, verdict: int | LocalspecError) -> dict[str, Any]:
    there = isinstance(verdict, int)
    return {
        "name": entry.pair,
        "role": entry.role,
        "model": str(entry.repository),
        "size": verdict if there else None,
        "error": None if there else str(verdict),
    }
