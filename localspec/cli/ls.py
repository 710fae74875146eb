"""`localspec ls`: the models on this disk, and the pairs there are to fetch."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from localspec.cli.ls_others import show_others
from localspec.cli.ls_pairs import show_pairs
from localspec.cli.ls_remote import show_remote
from localspec.cli.output import Output
from localspec.cli.table import table_text
from localspec.gguf.files import bytes_of
from localspec.hub import store
from localspec.hub.partial_files import PartialFile, partial_files
from localspec.imports import links
from localspec.models.inventory import InventoryEntry, model_inventory
from localspec.utils.format import ago, counted, format_bytes

_COLUMNS = ("name", "size", "quant", "last use", "drafters that fit")


@click.command()
@click.option("--all", "everything", is_flag=True, help="List every pair of models.toml.")
@click.option(
    "--others",
    is_flag=True,
    help="List what other tools (Ollama, LM Studio, llama.cpp) have on this disk.",
)
@click.option(
    "--remote", is_flag=True, help="Ask the Hub whether it has all models of models.toml."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, not a table.")
def ls(*, everything: bool, others: bool, remote: bool, as_json: bool) -> int:
    """List the models on this disk, and which of them can draft for which."""
    output = Output()
    if remote:
        return show_remote(output, as_json=as_json)
    if others:
        show_others(output, as_json=as_json)
    elif everything:
        show_pairs(output, as_json=as_json)
    else:
        _show_models(output, as_json=as_json)
    return 0


def _show_models(output: Output, *, as_json: bool) -> None:
    models = model_inventory()
    lost = links.lost()
    parts = [part for repository in store.repositories() for part in partial_files(repository)]
    blobs = [blob for each in models for blob in each.stored.blobs]
    projectors = [each.projector for each in models if each.projector]
    total = bytes_of([*blobs, *projectors, *(part.path for part in parts)])
    if as_json:
        records = [_record(each) for each in models], [_part_record(part) for part in parts]
        gone = [{"name": each.name, "file": str(each.file)} for each in lost]
        output.record({"models": records[0], "incomplete": records[1], "lost": gone, "size": total})
        return
    output.data(table_text(_COLUMNS, [_cells(each) for each in models], right=["size"]))
    for line in (
        *_reading_lines(models),
        *(each.reason for each in lost),
        *_incomplete_lines(parts),
    ):
        output.note(line)
    size = format_bytes(total)
    output.note(
        f"{counted(len(models), 'model')}, {size} in all; those of the Hub are in "
        f"{store.hub_cache()}"
    )


def _cells(each: InventoryEntry) -> tuple[str, ...]:
    drafters = [Path(name).name if Path(name).is_absolute() else name for name in each.drafters]
    return (
        each.name,
        format_bytes(each.stored.size),
        each.stored.names.quant or "-",
        "-" if each.last_use is None else ago(each.last_use),
        ", ".join(drafters) or (f"{each.kind} drafter of its target" if each.kind else "-"),
    )


def _record(each: InventoryEntry) -> dict[str, Any]:
    stored = each.stored
    return {
        "name": each.name,
        "repository": stored.repository,
        "quant": stored.names.quant,
        "files": [str(file) for file in stored.files],
        "size": stored.size,
        "last_use": each.last_use,
        "drafters": each.drafters,
        "kind": each.kind,
        "projector": str(each.projector) if each.projector else None,
    }


def _reading_lines(models: Sequence[InventoryEntry]) -> list[str]:
    """Return a line per file that reads images or sounds, with the models that it is for."""
    names: dict[Path, list[str]] = {}
    for each in models:
        if each.projector:
            names.setdefault(each.projector, []).append(each.name)
    return [
        f"{path.name} ({format_bytes(bytes_of([path]))}) reads images or sounds for "
        f"{' and '.join(of)}"
        for path, of in names.items()
    ]


def _part_record(part: PartialFile) -> dict[str, Any]:
    return {**asdict(part), "path": str(part.path), "size": part.size}


def _incomplete_lines(parts: Sequence[PartialFile]) -> list[str]:
    """Return a line per model of which interrupted downloads left parts."""
    lines = []
    ordered = sorted(parts, key=_model_key)
    for (repository, model, resumable), group in groupby(ordered, _model_key):
        found = [*group]
        kept, name = format_bytes(sum(part.size for part in found)), model or repository
        if resumable:
            whole = f" of {format_bytes(sum(part.total or 0 for part in found))}" if model else ""
            lines.append(
                f"{name}: incomplete, {kept}{whole} kept; localspec pull {name} continues it"
            )
        else:
            lines.append(f"{name}: {kept} left by a download that cannot be continued")
    return lines


def _model_key(part: PartialFile) -> tuple[str, str, bool]:
    return part.repository, part.model or "", part.resumable
