"""`localspec forget`: deletes the texts and caches that were kept."""

import click

from localspec.cli.chats import opened_archive
from localspec.cli.confirmation import agreed, at_terminal
from localspec.cli.output import Output
from localspec.distillation import work_folder
from localspec.drafters.suffix_store import clear_all, default_folder
from localspec.engine.kept_store import kept_store
from localspec.engine.state_store import StateStore
from localspec.errors import LocalspecError


@click.command()
@click.option("--chats", is_flag=True, help="Delete all conversations of the chat, too.")
@click.option("--yes", is_flag=True, help="Delete without a question.")
def forget(*, chats: bool, yes: bool) -> None:
    """Delete all texts that --remember and trainings stored, and all caches that --keep and
    sessions (save_state) stored.

    Conversations of the chat are deleted with --chats only; `localspec chats` lists them
    and deletes one. Trained
    drafters are not deleted: use `localspec rm`. On a terminal it asks first.
    """
    output = Output()
    if not (_forget_chats(output, yes=yes) if chats else yes or _may_delete()):
        output.note("nothing was deleted")
        return
    try:
        clear_all()
        work_folder.clear_all()
    except OSError as error:
        raise LocalspecError(f"stored texts cannot be deleted: {error}") from error
    texts, caches = [default_folder(), work_folder.default_folder()], []
    for store in (StateStore(), kept_store()):
        store.clear()
        if store.problem:
            raise LocalspecError(store.problem)
        caches.append(store.folder)
    output.note(
        f"all stored texts in {' and '.join(map(str, texts))}, and all caches in "
        f"{' and '.join(map(str, caches))}, are deleted"
    )


def _may_delete() -> bool:
    """Ask where there is somebody to ask; a script meant it."""
    return not at_terminal() or agreed("Delete all stored texts and caches?")


def _forget_chats(output: Output, *, yes: bool) -> bool:
    """Delete all conversations, after a question; return whether the user agrees."""
    with opened_archive() as archive:
        if not (yes or agreed(f"Delete all conversations in {archive.file}?")):
            return False
        archive.delete_all()
    output.note(
        f"all conversations in {archive.file} are deleted; a chat that has one open saves it again"
    )
    return True
