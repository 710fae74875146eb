"""The options that name prompts, for commands that run many of them."""

import click

from localspec.bench import LONG, SETS, TERMINAL
from localspec.cli.options import Command, stacked


def prompt_set_options(command: Command) -> Command:
    """Add --set (bundled prompt sets) and --prompts (a file of the user's)."""
    return stacked(
        click.option(
            "--set",
            "sets",
            metavar="|".join([*SETS, LONG]) + ",...",
            help=f"Bundled prompts; those of {LONG} have thousands of tokens. [default: {TERMINAL} "
            f"for the bundled pair, also scaled; all but {TERMINAL} and {LONG} for others; none "
            "with --prompts]",
        ),
        click.option(
            "--prompts",
            "file",
            metavar="FILE",
            help="Your own prompts: a text file, with a line --- between two prompts, or a .jsonl "
            'file of {"prompt": ...} or {"messages": [...]}.',
        ),
    )(command)
