"""Outline: what every command takes, so that completing a word imports none of them.

A command's module imports what the command needs, the engine for one, and that takes longer than
anybody waits for a word. `commands.json` says what the modules would; a test keeps it true, and

    python -m localspec.cli.command_index

writes it anew.
"""

import json
from importlib import resources
from pathlib import Path
from typing import Any

import click

from localspec.cli.shell_completion import files, models, words

_FILE = Path(str(resources.files("localspec.cli"))) / "commands.json"
# What a placeholder in --help stands for.
_MODELS = {"MODEL", "PAIR", "PATH", "TARGET", "DRAFTER"}
_FILES = {"FILE", "FILENAME"}


def command(name: str, about: str) -> click.Command:
    """As much of a command as completing takes. about: its line in `localspec --help`."""
    outline = json.loads(_FILE.read_text(encoding="utf-8"))
    return click.Command(
        name, params=[_parameter(each) for each in outline.get(name, ())], help=about
    )


def described(command: click.Command) -> list[dict[str, Any]]:
    """The outline of a real command: an entry for every option and argument."""
    context = click.Context(command)
    return [_entry(parameter, context) for parameter in command.params]


def as_json(group: click.Group) -> str:
    """The outline of every command of a group, a line for each entry."""
    context = click.Context(group)
    lines = []
    for name in group.list_commands(context):
        real = group.get_command(context, name)
        entries = (
            [json.dumps(entry, ensure_ascii=False) for entry in described(real)] if real else []
        )
        lines.append(f"{json.dumps(name)}: [\n  " + ",\n  ".join(entries) + "\n]")
    return "{\n" + ",\n".join(lines) + "\n}\n"


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
    """What may follow: words, models or files, as far as `--help` tells."""
    placeholders = parameter.make_metavar(context).strip("[]{}.").split("|")
    if isinstance(parameter.type, click.Choice):
        fixed = [str(choice) for choice in parameter.type.choices]
    else:
        fixed = [each for each in placeholders if each.islower()]
    # NAME alone is a model's as an argument; options have other things with names.
    alone = isinstance(parameter, click.Option) and len(placeholders) == 1
    named = _MODELS if alone else {*_MODELS, "NAME"}
    kind = "models" if named & {*placeholders} else "files" if _FILES & {*placeholders} else None
    return {key: value for key, value in (("words", fixed), ("kind", kind)) if value}


def _parameter(entry: dict[str, Any]) -> click.Parameter:
    names, fixed, kind = entry["names"], entry.get("words", ()), entry.get("kind")
    complete = models(fixed) if kind == "models" else files if kind == "files" else words(fixed)
    if names[0].startswith("-"):
        flag, about = entry.get("flag", False), entry["help"]
        return click.Option(names, is_flag=flag, help=about, shell_complete=complete)
    nargs = entry.get("nargs", 1)
    return click.Argument(names, required=False, nargs=nargs, shell_complete=complete)


if __name__ == "__main__":
    from localspec.cli.main import localspec

    _FILE.write_text(as_json(localspec), encoding="utf-8")
