"""What `localspec ls --all` shows: every pair of models.toml, and what of it is on this disk."""

from typing import Any

from localspec.cli.output import Output
from localspec.cli.table import table_text
from localspec.gguf.files import PREFERRED, bytes_of, files_of
from localspec.hub.reference import Repository
from localspec.models import registry
from localspec.models.locate import find_file
from localspec.models.registry import Pair
from localspec.utils.format import format_bytes


def show_pairs(output: Output, *, as_json: bool) -> None:
    """Show every pair, how much of it is on this disk, and what it is for."""
    pairs = registry.pairs().values()
    if as_json:
        output.record({"pairs": [pair_record(pair) for pair in pairs]})
        return
    columns = ("name", "on disk", "size", "parameters", "what it is for")
    output.data(table_text(columns, [_cells(pair) for pair in pairs], right=["size"]))
    output.note("localspec pull NAME fetches a pair, localspec show NAME tells all of it")


def pair_record(pair: Pair) -> dict[str, Any]:
    """Return the object that `--json` prints for a pair: its entry in models.toml, its files."""
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
    size = format_bytes(bytes_of(files)) if on_disk == "yes" else _stated_size(pair)
    return pair.name, on_disk, size, pair.parameters or "-", pair.note or "-"


def _stated_size(pair: Pair) -> str:
    """Return the size of the target that models.toml names."""
    chosen = isinstance(pair.target, Repository) and pair.target.quant
    for quant in [chosen] if chosen else PREFERRED:
        if quant in pair.sizes:
            return format_bytes(int(1e9 * pair.sizes[quant]))
    return "-"
