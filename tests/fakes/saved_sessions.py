"""Sessions for tests, and what an archive has of them."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from localspec.conversation.turns import Conversation, Turn
from localspec_tui.archive import Archive


def kept(archive: Archive, *texts: str, model: str = "tiny") -> str:
    """The key of a session in which these were asked."""
    key = archive.create(model, None)
    conversation = Conversation()
    for text in texts:
        archive.save(key, [conversation.add(Turn("user", text))], conversation.last)
    return key


def titles(archive: Archive) -> list[str]:
    return [summary.title for summary in archive.list()]


def found(archive: Archive, words: str) -> list[str]:
    return [summary.title for summary, _ in archive.search(words)]


def query(file: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(statement).fetchall()


def fields(turn: Turn) -> tuple[object, ...]:
    return (
        turn.key,
        turn.role,
        turn.content,
        turn.thought,
        turn.raw,
        turn.written,
        turn.vocabulary,
        turn.stop_reason,
        turn.before and turn.before.key,
        [each.key for each in turn.after],
    )


def tree(conversation: Conversation) -> list[tuple[object, ...]]:
    """All that there is to know of a conversation, but where it goes on."""
    return [fields(turn) for turn in conversation.everything()]
