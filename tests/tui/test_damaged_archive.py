"""A damaged archive never closes the chat: what cannot be read is set aside, and said."""

import asyncio
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fakes.pilot import running_chat
from fakes.plain_chat import Chat
from fakes.scripted import Script
from fuzz.archives import QUESTION, archives, written
from fuzz.campaign import Campaign

from localspec_tui.archive import Archive

COUNT = 140


def test_nothing_is_raised_that_would_close_the_chat() -> None:
    with archives() as case:
        campaign = Campaign().run(case, range(COUNT))
    assert not campaign.faults, campaign.report()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("role", "robot"),
        ("content", 5),
        ("key", b"\xff"),
        ("tokens", "[[["),
        ("sampler_state", '["mirostat", NaN]'),
        ("sampler_state", "[5, 0.5]"),
        ("sampler_state", b"\xff"),
    ],
)
def test_only_the_damaged_turn_is_lost(tmp_path: Path, column: str, value: Any) -> None:
    file = tmp_path / "sessions.sqlite3"
    [key, *others] = written(file)
    with closing(sqlite3.connect(file)) as connection, connection:
        if column == "sampler_state":
            connection.execute("INSERT INTO sampler_state (turn, state) VALUES (2, ?)", [value])
        else:
            connection.execute(f"UPDATE turn SET {column} = ? WHERE number = 2", [value])
    with closing(Archive(file)) as archive:
        turns = [*archive.open(key).conversation.everything()]
        # Its type makes SQLite store 5 as a text, which is one.
        lost = column == "role" or (column == "key" and isinstance(value, bytes))
        assert len(turns) == (5 if lost else 6)
        assert not any(turn.sampler_state for turn in turns)
        assert bool(archive.problem) == lost
        assert [turn.content for turn in turns if turn.role == "user"] == [
            f"{QUESTION} 0 {number}" for number in range(3)
        ]
        assert all(len([*archive.open(each).conversation.everything()]) == 6 for each in others)


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes are POSIX's")
@pytest.mark.parametrize(
    "make", [os.mkfifo, os.mkdir, lambda path: Path(path).write_text("x" * 5000)]
)
def test_a_file_that_cannot_be_opened_is_set_aside_with_its_name(tmp_path: Path, make: Any) -> None:
    file = tmp_path / "sessions.sqlite3"
    make(file)
    with closing(Archive(file)) as archive:
        assert archive.is_kept
        assert archive.problem and "renamed to sessions.sqlite3.aside-1" in archive.problem
        assert archive.list() == []
    assert (tmp_path / "sessions.sqlite3.aside-1").exists()


def damaged(file: Path) -> str:
    """Make the latest session one with a damaged question. Returns the line that says it."""
    [*_, key] = written(file)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(
            "UPDATE turn SET role = 'robot' WHERE number = (SELECT max(turn.number) FROM turn "
            "JOIN session ON session.number = turn.session WHERE session.key = ? "
            "AND role = 'user')",
            [key],
        )
        connection.execute("UPDATE session SET changed = 1e10 WHERE key = ?", [key])
        [(title,)] = connection.execute("SELECT title FROM session WHERE key = ?", [key])
    return f"1 damaged message of “{title}” left out"


def test_messages_that_are_left_out_are_said(tmp_path: Path) -> None:
    line = damaged(tmp_path / "sessions.sqlite3")

    async def body() -> None:
        async with running_chat(Script(), tmp_path, latest=True) as chat:
            assert chat.notes.count(line) == 1

    asyncio.run(body())


def test_the_plain_chat_says_them_too(chat: Chat, file: Path) -> None:
    file.parent.mkdir()
    line = damaged(file)
    assert chat(Script(), "hi\n", latest=True).notes.count(line) == 1
