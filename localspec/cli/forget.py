"""`localspec forget`: deletes the texts and caches that were kept."""

import click

from localspec.cli.output import Output
from localspec.drafters.suffix_store import clear_all, default_folder
from localspec.engine.state_store import StateStore
from localspec.errors import LocalspecError


@click.command()
def forget() -> None:
    """Delete every text that --remember kept, and every cache that a session kept (save_state).

    Past conversations of the chat stay: there, Ctrl-O deletes them.
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
    output.note(f"nothing is kept in {default_folder()} and {states.folder} any more")
