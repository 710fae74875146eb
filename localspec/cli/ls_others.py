"""What `localspec ls --others` shows: the models that other tools have on this disk."""

import os
from typing import Any

from localspec.cli.output import Output
from localspec.cli.table import table_text
from localspec.imports.sources import all_folders, collections_of, unreadable
from localspec.models.other_tools import OtherModel, other_models
from localspec.utils.format import counted, format_bytes, one_line

_COLUMNS = ("name", "size", "tool", "what it is")


def show_others(output: Output, *, as_json: bool) -> None:
    """Show every model that Ollama, LM Studio or llama.cpp has, and what cannot be imported."""
    folders = all_folders()
    there = [(tool, path) for tool, path in folders if os.path.isdir(path)]
    found = other_models(each for tool, path in there for each in collections_of(tool, path))
    if as_json:
        output.record(
            {
                "models": [other_record(each) for each in found],
                "folders": [{"tool": tool, "folder": str(path)} for tool, path in there],
            }
        )
        return
    output.data(table_text(_COLUMNS, [_cells(each) for each in found], right=["size"]))
    for closed in filter(None, (unreadable(tool, path) for tool, path in folders)):
        output.note(closed)
    if not there:
        looked = ", ".join(str(path) for _, path in folders)
        output.note(f"no other tool has models here; looked for {looked}")
        return
    usable = counted(sum(each.problem is None for each in found), "model")
    output.note(f"{usable} can be used here without a copy: localspec pull --from TOOL [NAME]")


def other_record(each: OtherModel) -> dict[str, Any]:
    """Return the object that `--json` prints for a model of another tool."""
    return {
        "name": each.name,
        "tool": each.collection.tool,
        "repository": each.collection.repository,
        "kind": None if each.problem else each.kind,
        "size": each.size,
        "files": [str(file) for file in each.files],
        "problem": each.problem,
        "imported": each.imported,
        "projector": each.projector,
    }


def _cells(each: OtherModel) -> tuple[str, ...]:
    size = format_bytes(each.size) if each.files else "-"
    if each.problem:
        what = f"left out: it {one_line(each.problem)}"
    else:
        what = f"{each.kind} drafter" if each.is_drafter else each.kind
        what += f" with {each.projector}" if each.projector else ""
        what += ", imported" if each.imported else ""
    return each.name, size, each.collection.tool, what
