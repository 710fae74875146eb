"""The command index: options and arguments of every command, for completing words in a shell.

Importing a command's module imports the engine, which takes longer than anybody waits for a word.
`commands.json` lists what completion needs instead. `python -m localspec.cli.write_command_index`
writes it from the real commands, and a test checks that it is up to date.
"""

import json
from importlib import resources
from typing import Any

import click

from localspec.cli.shell_completion import models, words, words_or_files

FILE = "commands.json"


def indexed_command(name: str, summary: str) -> click.Command:
    """Return a command that can be completed but not called.

    summary: its line in `localspec --help`.
    """
    entries = _index().get(name, ())
    return click.Command(name, params=[_parameter(entry) for entry in entries], help=summary)


def all_options() -> set[str]:
    """Return every spelling of every command's options and arguments."""
    return {name for entries in _index().values() for entry in entries for name in entry["names"]}


def options_with_values(command: str) -> set[str]:
    """Return every spelling of a command's options that are followed by a value."""
    entries = [entry for entry in _index().get(command, ()) if not entry.get("flag")]
    return {name for entry in entries for name in entry["names"] if name.startswith("-")}


def _index() -> dict[str, Any]:
    index: dict[str, Any] = json.loads((resources.files("localspec.cli") / FILE).read_text("utf-8"))
    return index


def _parameter(entry: dict[str, Any]) -> click.Parameter:
    """Return the option or argument that an entry of the index describes."""
    names, fixed, kind = entry["names"], entry.get("words", ()), entry.get("kind")
    complete = {"models": models, "files": words_or_files}.get(kind or "", words)(fixed)
    if names[0].startswith("-"):
        flag, text = entry.get("flag", False), entry["help"]
        return click.Option(names, is_flag=flag, help=text, shell_complete=complete)
    nargs = entry.get("nargs", 1)
    return click.Argument(names, required=False, nargs=nargs, shell_complete=complete)
