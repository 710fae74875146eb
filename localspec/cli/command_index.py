"""The command index: options and arguments of every command, for completing words in a shell.

Importing a command's module imports the engine, which takes longer than anybody waits for a word.
`commands.json` lists what completion needs instead. `python -m localspec.cli.write_command_index`
writes it from the real commands, and a test checks that it is up to date.
"""

import json
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from typing import Any

import click

from localspec.cli.shell_completion import Complete, Items, models, word_list, words, words_or_files
from localspec.utils.option_names import typed_name

FILE = "commands.json"
# The commands of which `run` is one or the other.
_RUN = ("generate", "chat")


def indexed_command(name: str, summary: str) -> click.Command:
    """Return a command that can be completed but not called.

    summary: its line in `localspec --help`.
    """
    entries = _index().get(name, ())
    return click.Command(name, params=[_parameter(entry) for entry in entries], help=summary)


def indexed_run() -> click.Command:
    """Return `run MODEL [PROMPT]`, with the options of the commands that it stands for."""
    options = {
        entry["names"][0]: entry for entry in _run_entries() if entry["names"][0].startswith("-")
    }
    model: dict[str, Any] = {"names": ["model_name"], "kind": "models"}
    prompt: dict[str, Any] = {"names": ["prompt"], "nargs": -1}
    params = [_parameter(entry) for entry in (model, prompt, *options.values())]
    return click.Command("run", params=params)


def all_options() -> set[str]:
    """Return every spelling of every command's options and arguments."""
    return {name for entries in _index().values() for entry in entries for name in entry["names"]}


def options_with_values(command: str) -> set[str]:
    """Return every spelling of a command's options that are followed by a value."""
    entries = [entry for entry in _index().get(command, ()) if not entry.get("flag")]
    return {name for entry in entries for name in entry["names"] if name.startswith("-")}


def _setting_value(context: click.Context, parameter: click.Parameter, typed: str) -> Items:
    """Complete the value of `config set`, as that of the option of the same name."""
    option = typed_name(str(context.params.get("name")))
    entry = next((entry for entry in _run_entries() if option in entry["names"]), None)
    return _parameter(entry).shell_complete(context, typed) if entry else []


def _run_entries() -> list[dict[str, Any]]:
    return [entry for name in _RUN for entry in _index()[name]]


@cache
def _index() -> dict[str, Any]:
    index: dict[str, Any] = json.loads((resources.files("localspec.cli") / FILE).read_text("utf-8"))
    return index


_KINDS: dict[str | None, Callable[[Sequence[str]], Complete]] = {
    "models": models,
    "files": words_or_files,
    "list": word_list,
}


def _parameter(entry: dict[str, Any]) -> click.Parameter:
    """Return the option or argument that an entry of the index describes."""
    names, fixed, kind = entry["names"], entry.get("words", ()), entry.get("kind")
    complete = _setting_value if kind == "setting" else _KINDS.get(kind, words)(fixed)
    if names[0].startswith("-"):
        flag, text = entry.get("flag", False), entry["help"]
        return click.Option(names, is_flag=flag, help=text, shell_complete=complete)
    nargs = entry.get("nargs", 1)
    return click.Argument(names, required=False, nargs=nargs, shell_complete=complete)
