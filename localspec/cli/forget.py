"""`localspec forget`: deletes the texts and caches that were kept."""

import click

from localspec.cli.output import Output
from localspec.drafters.suffix_store import clear_all, default_folder
from localspec.engine.state_store import StateStore
from localspec.errors import LocalspecError


@click.command()
def forget() -> None:
    """Delete all texts that --remember stored, and all caches that sessions stored (save_state).

    Conversations of the chat are not deleted: use Ctrl-O in the chat for that.
    """
    output = Output()
    try:
        clear_all()
    except OSError as error:
        raise LocalspecError(f"past texts cannot be deleted: {error}") from error
    states = StateStore()
    states.clear()
    if states.problem:
        raise LocalspecError(states.problem)
    output.note(
        f"all stored texts and caches in {default_folder()} and {states.folder} are deleted"
    )
