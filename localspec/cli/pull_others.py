"""What `localspec pull --from` does: links models that another tool has on this disk."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from localspec.cli.ls_others import other_record
from localspec.cli.output import Output
from localspec.errors import ModelNotFoundError
from localspec.gguf.files import ModelFiles, bytes_of
from localspec.imports.links import link
from localspec.imports.sources import collections_of, source_folders
from localspec.models.other_tools import OtherModel, other_models, wanted_models
from localspec.utils.format import counted, format_bytes, one_line
from localspec.utils.shell import command_line


def pull_others(
    output: Output, source: str, name: str | None, *, dry_run: bool, as_json: bool
) -> int:
    """Link the models of a source; return the exit code.

    source: a tool or a folder. name: of the models to import; None for all. Raises
    ModelNotFoundError where nothing can be imported.
    """
    folders = source_folders(source)
    found = other_models(each for tool, path in folders for each in collections_of(tool, path))
    wanted = wanted_models(found, name) if name else found
    if not wanted:
        raise ModelNotFoundError(_nothing(source, name, found))
    linked, failed = _linked(output, wanted, dry_run=dry_run)
    if not linked:
        raise ModelNotFoundError(
            f"nothing of {source} can be imported; localspec ls --others lists what can"
        )
    if as_json:
        models = [{**other_record(each), "paths": [*map(str, paths)]} for each, paths in linked]
        left = [other_record(each) for each in failed]
        output.record({"source": source, "models": models, "left_out": left})
    else:
        output.data("".join(f"{path}\n" for _, paths in linked for path in paths))
    _conclude(output, [each for each, _ in linked], dry_run=dry_run)
    return 0


def _linked(
    output: Output, wanted: Sequence[OtherModel], *, dry_run: bool
) -> tuple[list[tuple[OtherModel, list[Path]]], list[OtherModel]]:
    """Link what can be linked; return it with its links, and what was left out."""
    linked: list[tuple[OtherModel, list[Path]]] = []
    failed = []
    for each in wanted:
        if each.problem is None and each.names:
            try:
                linked.append((each, [] if dry_run else _link(each, each.names)))
                continue
            except ModelNotFoundError:  # its tool deletes it at this moment
                each = replace(each, problem="has vanished meanwhile; fetch it there again")
        output.note(f"{each.name} is left out: it {one_line(each.problem or '')}")
        failed.append(each)
    return linked, failed


def _link(model: OtherModel, names: ModelFiles) -> list[Path]:
    beside = ModelFiles((model.projector,)) if model.projector else None
    return [path for each in (names, beside) if each for path in link(model.collection, each)]


def _conclude(output: Output, models: Sequence[OtherModel], *, dry_run: bool) -> None:
    """Say what was linked, and what to do next."""
    size = format_bytes(bytes_of(file for each in models for file in each.files))
    number = counted(len(models), "model")
    verb = "would be linked" if dry_run else "linked"
    for each in models:
        again = ", again" if each.imported else ""
        eyes = f" with {each.projector}" if each.projector else ""
        output.note(f"{each.name}: {each.kind}{eyes}, {format_bytes(each.size)}{again}")
    output.note(f"{number} ({size}) {verb}, nothing copied; the files stay where they are")
    target = next((each for each in models if not each.is_drafter), None)
    if target and not dry_run:
        command = command_line(["localspec", "generate", "-m", target.name])
        output.note(f'next: {command} "..."')


def _nothing(source: str, name: str | None, found: Sequence[OtherModel]) -> str:
    if name is None:
        return f"{source} has no GGUF models; pass the folder in which they lie to --from"
    if not found:
        return f"{source} has no models, so none called {name!r}; pass another folder to --from"
    known = [each.name for each in found if each.problem is None]
    return f"{source} has no model {name!r}; it has {', '.join(known[:20]) or 'none to import'}"
