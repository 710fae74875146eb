"""`localspec chats`: the conversations of the chat, for commands that read or delete them."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.confirmation import agreed
from localspec.cli.output import Output
from localspec.cli.table import table_text
from localspec.errors import InvalidValueError
from localspec.utils.format import ago, counted, printable

if TYPE_CHECKING:
    from localspec_tui.archive import Archive
    from localspec_tui.saved_session import SessionSummary

# What options call all conversations, in place of a file.
CHATS = "chats"
# Conversations that an error names.
_MOST_NAMED = 5
_COLUMNS = ("id", "when", "model", "messages", "title")


@click.command()
@click.argument("file", required=False)
@click.option(
    "--export",
    "exported",
    metavar="ID",
    help="Write this conversation to FILE, or to stdout: as Markdown; as JSON, with all its "
    "branches and images, with --json and where FILE ends in .json.",
)
@click.option(
    "--delete", "deleted", metavar="ID", multiple=True, help="Delete this conversation; repeatable."
)
@click.option("--yes", is_flag=True, help="Delete without a question.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, not a table.")
def chats(
    *, file: str | None, exported: str | None, deleted: Sequence[str], yes: bool, as_json: bool
) -> None:
    """List the conversations of the chat, the latest first, or write or delete some of them.

    An ID may be cut short where no other begins like it. `localspec chat --resume ID` goes on with
    one, and `localspec forget --chats` deletes all.
    """
    if exported is not None and deleted:
        raise InvalidValueError("--export and --delete are two commands; leave one out")
    if file is not None and exported is None:
        raise InvalidValueError(f"{file} is a file to write to; name a conversation with --export")
    if yes and not deleted:
        raise InvalidValueError("--yes is of --delete; leave it out")
    if file == "-":
        file = None
    if as_json and (deleted or file is not None):
        raise InvalidValueError(
            "--delete prints no JSON; leave --json out"
            if deleted
            else "a FILE that ends in .json gets JSON; leave --json out"
        )
    output = Output()
    if exported is not None:
        _export(output, exported, file, as_json=as_json)
    elif deleted:
        _delete(output, deleted, yes=yes)
    else:
        _list(output, as_json=as_json)


@contextmanager
def opened_archive() -> Iterator["Archive"]:
    """Open the archive of the chat. Raises LocalspecError where its file cannot be opened."""
    # The chat's own room is the only one that knows it, and other commands are spared its imports.
    from localspec_tui.archive import Archive

    with closing(Archive()) as archive:
        archive.require_file()
        yield archive


class _NoneYetError(InvalidValueError):
    def __init__(self) -> None:
        super().__init__("there are no conversations yet; localspec chat begins one")


@contextmanager
def _existing_archive() -> Iterator["Archive"]:
    """Open the archive; raises _NoneYetError where opening it would make it."""
    from localspec_tui.archive import archive_file

    if not os.path.exists(archive_file()):
        raise _NoneYetError
    with opened_archive() as archive:
        yield archive


def no_conversations(option: str) -> InvalidValueError:
    """The error of an option that names conversations where there are none."""
    return InvalidValueError(
        f"{option} {CHATS}: there are no conversations yet; name files, or leave it out"
    )


def conversation_named(archive: "Archive", beginning: str) -> "SessionSummary":
    """Return the conversation whose key begins so. Raises InvalidValueError unless it is one."""
    if not beginning:
        raise InvalidValueError("the ID of a conversation is empty; localspec chats lists them")
    found = [each for each in archive.list() if each.key.startswith(beginning)]
    if not found:
        raise InvalidValueError(
            f"no conversation begins with {beginning!r}; localspec chats lists them, and "
            "localspec chat -c opens the latest"
        )
    if len(found) > 1:
        named = ", ".join(f"{each.key} ({each.title})" for each in found[:_MOST_NAMED])
        more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        raise InvalidValueError(
            f"{len(found)} conversations begin with {beginning!r}: {named}{more}"
        )
    return found[0]


def _list(output: Output, *, as_json: bool) -> None:
    found, where = [], ""
    with suppress(_NoneYetError), _existing_archive() as archive:
        found, where = archive.list(), str(archive.file)
    if as_json:
        output.record({"conversations": [_record(each) for each in found]})
        return
    output.data(table_text(_COLUMNS, [_cells(each) for each in found], right=["messages"]))
    output.note(
        f"{counted(len(found), 'conversation')} in {where}; localspec chat --resume ID goes on "
        "with one"
        if found
        else str(_NoneYetError())
    )


def _record(each: "SessionSummary") -> dict[str, Any]:
    return {
        "id": each.key,
        "changed": each.changed.isoformat(),
        "model": each.model,
        "messages": each.turns,
        "title": each.title,
    }


def _cells(each: "SessionSummary") -> tuple[str, ...]:
    from localspec_tui.labels import model_label

    when, model = ago(each.changed.timestamp()), printable(model_label(each.model))
    return each.key, when, model, str(each.turns), printable(each.title)


def _export(output: Output, beginning: str, file: str | None, *, as_json: bool) -> None:
    from localspec_tui.export import export_session, exported_text

    with _existing_archive() as archive:
        session = archive.read(conversation_named(archive, beginning).key)
    if file is not None:
        output.note(export_session(session, file))
    elif as_json:
        output.record(json.loads(exported_text(session, is_json=True)))
    else:
        output.data(exported_text(session))


def _delete(output: Output, beginnings: Sequence[str], *, yes: bool) -> None:
    from localspec_tui.kept_chats import forget

    with _existing_archive() as archive:
        found = {each.key: each for each in (conversation_named(archive, b) for b in beginnings)}
        for each in found.values():
            output.note(f"{each.key}: {each.title} ({counted(each.turns, 'message')})")
        if not (yes or agreed(f"Delete {counted(len(found), 'conversation')}?")):
            output.note("nothing was deleted")
            return
        for key in found:
            archive.delete(key)
            forget(key)
    output.note(
        f"{counted(len(found), 'conversation')} deleted; a chat that has one open saves it again"
    )
