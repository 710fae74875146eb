"""`localspec convert`: a published head, from safetensors to a GGUF for one target."""

import os
from pathlib import Path

import click

from localspec.cli.fetch import fetch, quieten_hub, waits_told
from localspec.cli.options import comma_separated
from localspec.cli.output import Output
from localspec.conversion.convert import Origin, convert
from localspec.conversion.hub_source import checkpoint_files, on_disk, origin_of
from localspec.conversion.published import TYPES
from localspec.errors import HubError, InvalidValueError, ModelNotFoundError
from localspec.hub.listing import list_files
from localspec.hub.reference import Repository, repository
from localspec.models.locate import locate
from localspec.utils.exit_codes import INTERRUPTED
from localspec.utils.format import format_bytes
from localspec.utils.paths import real_path


@click.command("convert")
@click.argument("source")
@click.option(
    "--target",
    required=True,
    metavar="TARGET",
    help="The model that the head was made for: a pair, user/repo[:quant] or a GGUF's path.",
)
@click.option(
    "-o",
    "--output",
    "out",
    metavar="FILE",
    help="The GGUF to write. [default: beside the target, or of a target that was pulled among "
    "localspec's own files, where --draft auto finds it]",
)
@click.option(
    "--type",
    "type_name",
    default="Q8_0",
    show_default=True,
    metavar="|".join(TYPES),
    help="Type of the matrices.",
)
@click.option(
    "--layers",
    metavar="N,N,N",
    help="Layers of the target whose input an EAGLE-3 head reads. [default: as config.json says]",
)
@click.option(
    "--targets-output",
    is_flag=True,
    help="Leave the output matrices of Medusa heads out: use the target's.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, not a path.")
def convert_command(
    *,
    source: str,
    target: str,
    out: str | None,
    type_name: str,
    layers: str | None,
    targets_output: bool,
    as_json: bool,
) -> int:
    """Convert a published head to a GGUF for one target.

    SOURCE is an EAGLE-3 head, Medusa heads or an MLP speculator in safetensors: a folder, or
    user/repo of the Hub, which is fetched. Tokenizer and shared weights are taken from the target's
    GGUF. A conversion that was interrupted leaves no file; run the same command again.
    """
    output = Output()
    quieten_hub()
    model = locate(target)
    try:
        folder, origin = _source(source, output)
    except KeyboardInterrupt:
        output.note("what was fetched is kept; run the same command again to continue")
        return INTERRUPTED
    done = convert(
        folder,
        model,
        Path(out) if out else None,
        type_name.upper(),
        origin=origin,
        own_output=not targets_output,
        layers=_layers(layers),
    )
    for note in done.notes:
        output.note(note)
    size = done.path.stat().st_size
    here = "" if done.written else ", as it was before"
    output.note(f"{done.path.name}: {done.kind}, {format_bytes(size)}{here}")
    if as_json:
        output.record(
            {
                "path": str(done.path),
                "kind": done.kind,
                "size": size,
                "written": done.written,
                "notes": [*done.notes],
            }
        )
    else:
        output.data(f"{done.path}\n")
    return 0


def _source(name: str, output: Output) -> tuple[Path, Origin]:
    """The folder of a checkpoint, which is fetched where it is on the Hub."""
    path = Path(name)
    if os.path.exists(path):
        return path, Origin(real_path(path).name)
    found = repository(name)
    if found is None or found.quant:
        raise ModelNotFoundError(
            f"there is no checkpoint {name}; pass a folder with *.safetensors, or user/repo"
        )
    return _from_hub(found, output)


def _from_hub(wanted: Repository, output: Output) -> tuple[Path, Origin]:
    try:
        with waits_told(output):
            files = checkpoint_files(list_files(wanted))
    except HubError as error:
        here = on_disk(wanted.id)
        if here is None:
            raise
        output.note(f"the Hub was not asked ({error}); the checkpoint on this disk is taken")
        return here[0], origin_of(wanted.id, here[1])
    return fetch([files])[0].parent, origin_of(wanted.id, files.commit)


def _layers(value: str | None) -> list[int] | None:
    if value is None:
        return None
    try:
        return [int(each) for each in comma_separated(value)]
    except ValueError as error:
        raise InvalidValueError(f"layers is {value!r}; write them as 2,16,29") from error
