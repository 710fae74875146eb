"""Writes the command index, `commands.json`, from the real commands.

    python -m localspec.cli.write_command_index

To be run whenever an option, an argument or a help text of a command has changed.
"""

import json
from pathlib import Path
from typing import Any

import click

from localspec.cli.command_index import FILE
from localspec.cli.main import localspec
from localspec.cli.settings import SETTINGS

# The placeholders of `--help` that stand for models and for files.
_MODELS = {"MODEL", "PAIR", "PATH", "TARGET", "DRAFTER"}
_FILES = {"FILE", "FILENAME", "FOLDER"}
# The value of the setting that is named before it.
_SETTINGS = {"VALUE"}


def index_text(group: click.Group) -> str:
    """Return the index of a group's commands as JSON, a line for each option and argument."""
    context = click.Context(group)
    blocks = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        entries = entries_of(command) if command else []
        lines = ",\n  ".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
        blocks.append(f"{json.dumps(name)}: [\n  {lines}\n]")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def entries_of(command: click.Command) -> list[dict[str, Any]]:
    """Return the entries of a command's options and arguments."""
    context = click.Context(command)
    return [_entry(parameter, context) for parameter in command.params]


def _entry(parameter: click.Parameter, context: click.Context) -> dict[str, Any]:
    entry: dict[str, Any] = {"names": [*parameter.opts, *parameter.secondary_opts]}
    if isinstance(parameter, click.Option):
        entry["help"] = parameter.help
        if parameter.is_flag:
            return {**entry, "flag": True}
    elif parameter.nargs != 1:
        entry["nargs"] = parameter.nargs
    return {**entry, **_values(parameter, context)}


def _values(parameter: click.Parameter, context: click.Context) -> dict[str, Any]:
    """Return the values a parameter takes: fixed words, models or files, as `--help` names them."""
    metavar = parameter.make_metavar(context).strip("[]{}.")
    # Of FILE[:SCALE], what is completed.
    placeholders = [each.partition("[")[0] for each in metavar.rstrip(",").split("|")]
    if isinstance(parameter.type, click.Choice):
        fixed = [str(choice) for choice in parameter.type.choices]
    elif "SETTING" in placeholders:
        fixed = list(SETTINGS)
    else:
        fixed = [each for each in placeholders if each.islower()]
    # NAME alone is a model's as an argument; options have other things with names.
    alone = isinstance(parameter, click.Option) and len(placeholders) == 1
    named = _MODELS if alone else {*_MODELS, "NAME"}
    kinds = {"models": named, "files": _FILES, "setting": _SETTINGS}
    kind = next((kind for kind, names in kinds.items() if names & {*placeholders}), None)
    if fixed and metavar.endswith(","):
        kind = "list"
    return {key: value for key, value in (("words", fixed), ("kind", kind)) if value}


if __name__ == "__main__":
    Path(__file__).with_name(FILE).write_text(index_text(localspec), encoding="utf-8")
