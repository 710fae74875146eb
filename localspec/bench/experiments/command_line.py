"""Command line of the experiments: arguments, tables on stdout, and new processes."""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from localspec.models import registry


def argument_parser(file: str, documentation: str | None) -> argparse.ArgumentParser:
    """A parser that names the experiment as it is run.

    file, documentation: `__file__` and `__doc__` of the experiment.
    """
    description = (documentation or "").splitlines()[0]
    return argparse.ArgumentParser(prog=f"python -m {_module(file)}", description=description)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add `--model`, by default the bundled target, and `--threads`."""
    parser.add_argument("--model", default=registry.bundled().target, type=Path)
    parser.add_argument("--threads", type=int)


class Table:
    """A table that is printed row by row, so that a long measurement shows what it has.

    columns: (heading, format of its cells), such as ("ratio", "6.2f"); texts are left-aligned with
    a format such as "<10". Prints the headings.
    """

    def __init__(self, *columns: tuple[str, str]) -> None:
        self._formats = [format_ for _, format_ in columns]
        headings = [f"{heading:{_heading_format(format_)}}" for heading, format_ in columns]
        print("  ".join(headings).rstrip(), flush=True)

    def print_row(self, *cells: object) -> None:
        """Print one row; the last cells may be left out."""
        texts = [f"{cell:{self._formats[index]}}" for index, cell in enumerate(cells)]
        print("  ".join(texts).rstrip(), flush=True)


def command_again(file: str, arguments: Sequence[str]) -> list[str]:
    """The command that runs the experiment again. file: `__file__` of the experiment."""
    return [sys.executable, "-m", _module(file), *arguments]


def run_in_new_process(
    file: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> str:
    """Run the experiment again, in a process that has loaded nothing yet; return its stdout.

    file: `__file__` of the experiment. environment: variables to set beside the present ones.

    Raises subprocess.CalledProcessError if it fails.
    """
    return subprocess.run(
        command_again(file, arguments),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    ).stdout


def _module(file: str) -> str:
    return f"{__package__}.{Path(file).stem}"


def _heading_format(format_: str) -> str:
    """The alignment and the width of a column, without how numbers are written."""
    found = re.match(r"([<>]?)\+?(\d+)", format_)
    assert found, format_
    return f"{found[1] or '>'}{found[2]}"
