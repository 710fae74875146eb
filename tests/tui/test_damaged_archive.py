"""A damaged archive never closes the chat: what cannot be read is set aside, and said."""

import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
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
    [("role", "robot"), ("content", 5), ("key", b"\xff"), ("tokens", "[[[")],
)
def test_only_the_damaged_turn_is_lost(tmp_path: Path, column: str, value: Any) -> None:
    file = tmp_path / "sessions.sqlite3"
    [key, *others] = written(file)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(f"UPDATE turn SET {column} = ? WHERE number = 2", [value])
    with closing(Archive(file)) as archive:
        turns = [*archive.open(key).conversation.everything()]
        # Its type makes SQLite store 5 as a text, which is one.
        lost = column == "role" or isinstance(value, bytes)
        assert len(turns) == (5 if lost else 6)
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
