"""The options that name prompts, for commands that run many of them."""

import click

from localspec.bench import LONG, SETS
from localspec.cli.options import Command, stacked


def prompt_set_options(command: Command) -> Command:
    """Add --set (bundled prompt sets) and --prompts (a file of the user's)."""
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
