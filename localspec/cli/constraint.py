"""The options that say what a text must satisfy, and reading what they name."""

from pathlib import Path

import click

from localspec.cli.options import Command, stacked
from localspec.errors import InvalidValueError


def constraint_options(command: Command) -> Command:
    """A grammar or a schema, as its text."""
    return stacked(
        click.option(
            "--grammar",
            metavar="FILE",
            callback=lambda _context, _option, path: path and _read("--grammar", path),
            help="The text must satisfy this GBNF grammar.",
        ),
        click.option(
            "--schema",
            metavar="FILE|JSON",
            callback=lambda _context, _option, value: value and _schema(value),
            help="The text must be JSON that satisfies this JSON schema.",
        ),
    )(command)


def _schema(value: str) -> str:
    return value if value.lstrip().startswith("{") else _read("--schema", value)


def _read(option: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidValueError(f"{option} {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidValueError(f"{option} {path}: it is not UTF-8") from error
