"""What `localspec ls --all` shows: every pair of models.toml, and what of it is on this disk."""

from typing import Any

from localspec.cli.output import Output
from localspec.cli.table import table_text
from localspec.gguf.files import bytes_of, files_of
from localspec.models import registry
from localspec.models.listed_drafter import ListedDrafter
from localspec.models.locate import find_file
from localspec.models.own_drafters import OwnDrafter, listed_drafters
from localspec.models.pair_memory import Room, memory_room, pair_memory, stated_bytes
from localspec.models.registry import Pair
from localspec.utils.format import format_bytes


def show_pairs(output: Output, *, as_json: bool) -> None:
    """Show every pair, how much of it is on this disk, whether it fits, and what it is for."""
    pairs, room = registry.pairs().values(), memory_room()
    if as_json:
        output.record({"pairs": [{**pair_record(pair), **_fit(pair, room)} for pair in pairs]})
        return
    columns = ("name", "on disk", "size", "fits", "parameters", "drafters", "what it is for")
    output.data(table_text(columns, [_cells(pair, room) for pair in pairs], right=["size"]))
    output.note(
        f"fits: with its drafter and the usual context, into the {format_bytes(room.free)} of "
        "memory that are free; tight: without the drafter, with a smaller context, or once other "
        "programs end"
    )
    output.note("localspec pull NAME fetches a pair, localspec show NAME shows its details")


def pair_record(pair: Pair) -> dict[str, Any]:
    """Return the object that `--json` prints for a pair: its entry in models.toml, its files."""
    target = find_file(pair.target)
    drafters = listed_drafters(pair, target)
    files = [each for each in drafters if each.reference]
    drafter = next((each.file for each in files if each.file), None)
    return {
        "name": pair.name,
        "target": str(pair.target),
        "drafter": str(files[0].reference) if files else None,
        "drafters": [_drafter_record(each) for each in drafters],
        "no_drafter": pair.no_drafter,
        "without_heads": [str(each) for each in pair.without_heads],
        "files": {
            "target": str(target) if target else None,
            "drafter": str(drafter) if drafter else None,
        },
        "prompt": pair.prompt,
        "parameters": pair.parameters,
        "context": pair.context,
        "sizes": dict(pair.sizes),
        "sampling": dict(pair.sampling),
        "licence": pair.licence,
        "note": pair.note,
        "unverified": pair.unverified,
    }


def _drafter_record(each: OwnDrafter) -> dict[str, Any]:
    listed = each.listed or ListedDrafter()
    return {
        "kind": each.kind,
        "model": str(each.reference) if each.reference else None,
        "in_target": each.reference is None,
        "file": str(each.file) if each.file else None,
        "size": listed.size or None,
        "sha256": listed.sha256 or None,
        "report": listed.report or None,
        "loses": listed.loses or None,
        "source": listed.source or None,
        "unverified": listed.unverified,
        "driven": True,
    }


def _fit(pair: Pair, room: Room) -> dict[str, Any]:
    """Return whether a pair fits, and the bytes that it takes; None: that is not known."""
    memory = pair_memory(pair)
    return {
        "fits": memory.fit(room) if memory else None,
        "needed": memory.needed if memory else None,
    }


def _cells(pair: Pair, room: Room) -> tuple[str, ...]:
    target = find_file(pair.target)
    here = [each.file for each in listed_drafters(pair, target) if each.file]
    files = [file for path in {target, *here} if path for file in files_of(path)]
    if target:
        on_disk = "target only" if pair.drafters and not here else "yes"
    else:
        on_disk = "drafter only" if here else "no"
    size = format_bytes(bytes_of(files)) if on_disk == "yes" else _stated_size(pair)
    kinds = ", ".join(dict.fromkeys(each.kind for each in pair.drafters)) or "-"
    fits = _fit(pair, room)["fits"] or "-"
    return pair.name, on_disk, size, fits, pair.parameters or "-", kinds, pair.note or "-"


def _stated_size(pair: Pair) -> str:
    """Return the size of the target that models.toml names."""
    size = stated_bytes(pair)
    return format_bytes(size) if size else "-"
