"""`localspec forget`: deletes the texts and caches that were kept."""

import click

from localspec.cli.output import Output
from localspec.drafters.suffix_store import clear_all, default_folder
from localspec.engine.state_store import StateStore
from localspec.errors import LocalspecError
from localspec.server.kept_states import kept_folder


@click.command()
def forget() -> None:
    """Delete all texts that --remember stored, and all caches that `serve --keep` and sessions
    (save_state) stored.

    Conversations of the chat are not deleted: use Ctrl-O in the chat for that.
    """
    output = Output()
    try:
        clear_all()
    except OSError as error:
        raise LocalspecError(f"past texts cannot be deleted: {error}") from error
    folders = [default_folder()]
    for store in (StateStore(), StateStore(kept_folder())):
        store.clear()
        if store.problem:
            raise LocalspecError(store.problem)
        folders.append(store.folder)
    texts, *caches = folders
    output.note(
        f"all stored texts in {texts}, and all caches in {' and '.join(map(str, caches))}, "
        "are deleted"
    )
