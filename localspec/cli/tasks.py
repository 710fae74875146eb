"""The options that say which prompts are run, for the commands that run many."""

import click

from localspec.bench.prompt_sets import LONG, SETS
from localspec.cli.options import Command, stacked


def task_options(command: Command) -> Command:
    """The sets that come along, and a file of the user's."""
    return stacked(
        click.option(
            "--set",
            "sets",
            metavar="LIST",
            help=f"Which prompt sets: {', '.join(SETS)}, {LONG} (thousands of tokens before the "
            f"answer). [default: all but {LONG}, or none with --prompts]",
        ),
        click.option(
            "--prompts",
            "file",
            metavar="FILE",
            help="Prompts of your own: a text file with lines of --- between them, or a .jsonl "
            'file of {"prompt": ...} or {"messages": [...]}.',
        ),
    )(command)


def listed(value: str) -> list[str]:
    """What stands between the commas, without empty places."""
    return [each.strip() for each in value.split(",") if each.strip()]
