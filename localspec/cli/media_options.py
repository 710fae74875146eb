"""Images and sounds of a command's prompt: files, read and checked before a model is loaded."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

from localspec.cli.options import Command, stacked
from localspec.errors import InvalidValueError
from localspec.utils.bounded_file import read_at_most
from localspec.utils.format import printable
from localspec.utils.media_file import MOST_BYTES, is_sound, require_readable


def media_options(command: Command) -> Command:
    """Add --image and --audio; the command gets the contents of each one's files."""
    return stacked(
        _media_option("image", "JPEG, PNG, GIF or BMP", "An image for the question"),
        _media_option("audio", "WAV, MP3 or FLAC", "A sound for the question"),
    )(command)


def require_projector(
    given: Mapping[str, Sequence[bytes]], model: str | None, mmproj: str | None
) -> str | None:
    """Return the file that reads what is given, so that it has room before layers of the model.

    given: by the option. model, mmproj: as the command has them; without images and sounds, mmproj
    is returned. Raises InvalidValueError if there are some that the model does not read.
    """
    # `--help` must not wait for these imports.
    from localspec.models import registry
    from localspec.models.locate import locate
    from localspec.models.projectors import NO_PROJECTOR, find_projector

    if (option := next(filter(given.get, given), None)) is None:
        return mmproj
    if mmproj == NO_PROJECTOR:
        raise InvalidValueError(f"{option} is given beside --mmproj none; leave one of them out")
    target = registry.bundled().target if model is None else locate(model)
    projector, left_out = find_projector(mmproj, target)
    if projector is None:
        why = left_out or "there is no mmproj file beside it"
        raise InvalidValueError(
            f"{option}: {target.name} reads texts only: {why}; localspec pull fetches one where "
            "the model's repository has it, and --mmproj names another"
        )
    for option, reads in (("--image", projector.images), ("--audio", projector.sounds)):
        if given[option] and not reads:
            raise InvalidValueError(
                f"{option}: {projector.path.name}, which is for {target.name}, reads "
                f"{projector.kinds} only; leave it out"
            )
    return str(projector.path)


def _media_option(kind: str, formats: str, text: str) -> Callable[[Command], Command]:
    return click.option(
        f"--{kind}",
        kind,
        multiple=True,
        metavar="FILE",
        callback=lambda _context, _option, files: [_read(kind, formats, each) for each in files],
        help=f"{text}, which stands before its text: {formats}. Repeatable.",
    )


def _read(kind: str, formats: str, file: str) -> bytes:
    """Read a file. Raises InvalidValueError for what is no image, or no sound."""
    name = f"--{kind} {printable(file)}"
    if file == "-":
        raise InvalidValueError(f"{name}: standard input is for the prompt; name a file")
    try:
        data = read_at_most(Path(file), MOST_BYTES)
    except OSError as error:
        raise InvalidValueError(
            f"{name} cannot be read: {error.strerror or error}; name a file in {formats}"
        ) from error
    if kind == "audio" and not is_sound(data):
        raise InvalidValueError(f"{name} is no {formats}; convert it to one of these")
    if kind == "image" and is_sound(data):
        raise InvalidValueError(f"{name} is a sound; name it with --audio")
    try:
        require_readable(data, images=True, sounds=kind == "audio")
    except InvalidValueError as error:
        raise InvalidValueError(f"{name}: {error}") from error
    return data
