"""`localspec completion`: prints the script that lets a shell complete words."""

import os
from pathlib import Path

import click

from localspec.cli.output import Output
from localspec.cli.shell_completion import SHELLS
from localspec.errors import InvalidValueError

_PROGRAM, _VARIABLE = "localspec", "_LOCALSPEC_COMPLETE"


@click.command()
@click.argument("shell", required=False, metavar=f"[{'|'.join(SHELLS)}]")
@click.pass_context
def completion(context: click.Context, *, shell: str | None) -> None:
    """Print a script that completes commands, options and model names in your shell.

    Without an argument, the script is for the shell in $SHELL.

    \b
    bash  add to ~/.bashrc: eval "$(localspec completion bash)"
    zsh   add to ~/.zshrc, below compinit: eval "$(localspec completion zsh)"
    fish  localspec completion fish > ~/.config/fish/completions/localspec.fish
    """
    output = Output()
    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        whose = "" if shell else " of $SHELL"
        raise InvalidValueError(
            f"no completion is known for the shell {name!r}{whose}; choose {', '.join(SHELLS)}"
        )
    output.data(SHELLS[name](context.find_root().command, {}, _PROGRAM, _VARIABLE).source())
