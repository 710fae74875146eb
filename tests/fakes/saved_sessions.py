"""Saves sessions for tests, and reads them back."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from localspec.conversation.turns import Conversation, Turn
from localspec_tui.archive import Archive


def save_session(archive: Archive, *texts: str, model: str = "tiny") -> str:
    """Save a session with these questions, and return its key."""
    key = archive.create(model, None)
    conversation = Conversation()
    for text in texts:
        archive.save(key, [conversation.add(Turn("user", text))], conversation.last)
    return key


def titles(archive: Archive) -> list[str]:
    return [summary.title for summary in archive.list()]


def found_titles(archive: Archive, words: str) -> list[str]:
    return [summary.title for summary, _ in archive.search(words)]


def query(file: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(statement).fetchall()


def turn_fields(turn: Turn) -> tuple[object, ...]:
    return (
        turn.key,
        turn.role,
        turn.content,
        turn.thought,
        turn.raw,
        turn.written,
        turn.vocabulary,
        turn.stop_reason,
        turn.seed,
        turn.thinking,
        turn.sampler_state,
        turn.before and turn.before.key,
        [each.key for each in turn.after],
    )


def turn_tree(conversation: Conversation) -> list[tuple[object, ...]]:
    """Every field of every turn of a conversation."""
    return [turn_fields(turn) for turn in conversation.everything()]
