"""Conversations of the chat, for commands that read or delete them."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from localspec.errors import InvalidValueError

if TYPE_CHECKING:
    from localspec_tui.archive import Archive

# What options call all conversations, in place of a file.
CHATS = "chats"


@contextmanager
def opened_archive() -> Iterator["Archive"]:
    """Open the archive of the chat. Raises LocalspecError where its file cannot be opened."""
    # The chat's own room is the only one that knows it, and other commands are spared its imports.
    from localspec_tui.archive import Archive

    with closing(Archive()) as archive:
        archive.require_file()
        yield archive


def no_conversations(option: str) -> InvalidValueError:
    """The error of an option that names conversations where there are none."""
    return InvalidValueError(
        f"{option} {CHATS}: there are no conversations yet; name files, or leave it out"
    )
