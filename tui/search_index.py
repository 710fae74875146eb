"""The search index: which sessions hold some words. Without FTS5, all turns are read instead."""

import re
import sqlite3
from collections.abc import Mapping
from string import punctuation

from localspec.utils.format import printable
from localspec_tui.transaction import transaction

_INDEX = (
    """
    CREATE VIRTUAL TABLE found USING fts5 (
        content, content='turn', content_rowid='number', tokenize='unicode61 remove_diacritics 2'
    )
    """,
    """
    CREATE TRIGGER found_added AFTER INSERT ON turn BEGIN
        INSERT INTO found (rowid, content) VALUES (new.number, new.content);
    END
    """,
    """
    CREATE TRIGGER found_changed AFTER UPDATE OF content ON turn
    WHEN new.content IS NOT old.content BEGIN
        INSERT INTO found (found, rowid, content) VALUES ('delete', old.number, old.content);
        INSERT INTO found (rowid, content) VALUES (new.number, new.content);
    END
    """,
    """
    CREATE TRIGGER found_removed AFTER DELETE ON turn BEGIN
        INSERT INTO found (found, rowid, content) VALUES ('delete', old.number, old.content);
    END
    """,
    "INSERT INTO found (found) VALUES ('rebuild')",
)
_TRIGGERS = ("found_added", "found_changed", "found_removed")
# Of what is searched for: more letters or words say nothing more, and SQLite has limits.
_MOST_LETTERS, _MOST_WORDS = 1000, 32
# Letters of a snippet, before and after what was found.
_AROUND = 40


def keep(connection: sqlite3.Connection) -> None:
    """See to it that every change of a turn goes to the index, or none where there is no FTS5.

    The triggers tell whether the index is complete: a file may have been used without FTS5.
    """
    if has_fts5(connection) == _is_kept(connection):
        return
    with transaction(connection):
        for trigger in _TRIGGERS:
            connection.execute(f"DROP TRIGGER IF EXISTS {trigger}")
        if has_fts5(connection):
            connection.execute("DROP TABLE IF EXISTS found")
            for statement in _INDEX:
                connection.execute(statement)


def has_fts5(connection: sqlite3.Connection) -> bool:
    """Whether SQLite was built with it."""
    modules = "SELECT count(*) FROM pragma_module_list WHERE name = 'fts5'"
    return bool(connection.execute(modules).fetchone()[0])


def find(connection: sqlite3.Connection, text: str) -> Mapping[int, str]:
    """A snippet of the latest turn that has all these words, by the number of its session.

    The last word may be the beginning of one. What is found nowhere as words (they are not told
    apart in every language, and some queries have none) may be any part of a turn.
    """
    words = printable(text[:_MOST_LETTERS], instead=" ").split()[:_MOST_WORDS]
    if not words:
        return {}
    found = _by_words(connection, words) if _is_kept(connection) else {}
    return found or _by_parts(connection, words)


def _is_kept(connection: sqlite3.Connection) -> bool:
    query = "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'found%'"
    return bool(connection.execute(query).fetchone()[0] == len(_TRIGGERS))


def _by_words(connection: sqlite3.Connection, words: list[str]) -> dict[int, str]:
    # In quotation marks, everything but these is taken as it is.
    quoted = " ".join('"' + word.replace('"', '""') + '"' for word in words)
    query = quoted + "*" if words[-1][-1].isalnum() else quoted
    return _snippets(
        connection,
        "SELECT session, max(number) AS number FROM found JOIN turn ON number = found.rowid "
        "WHERE found MATCH ? GROUP BY session",
        [query],
        words[0],
    )


def _by_parts(connection: sqlite3.Connection, words: list[str]) -> dict[int, str]:
    like = " AND ".join(["content LIKE ? ESCAPE '\\'"] * len(words))
    return _snippets(
        connection,
        f"SELECT session, max(number) AS number FROM turn WHERE {like} GROUP BY session",
        [f"%{_escaped(word)}%" for word in words],
        words[0],
    )


def _snippets(
    connection: sqlite3.Connection, latest: str, values: list[str], word: str
) -> dict[int, str]:
    """Of the latest turn of each session, which a query finds."""
    rows = connection.execute(
        f"WITH latest AS ({latest}) "
        "SELECT latest.session, content FROM latest JOIN turn USING (number)",
        values,
    )
    return {session: _snippet(content, word) for session, content in rows}


def _escaped(word: str) -> str:
    for special in "\\%_":
        word = word.replace(special, f"\\{special}")
    return word


def _snippet(content: str, word: str) -> str:
    """What is around a word, or the beginning if it is spelt otherwise there."""
    found = re.search(re.escape(word.strip(punctuation) or word), content, re.IGNORECASE)
    at, end = found.span() if found else (0, 0)
    start, end = max(at - _AROUND, 0), end + _AROUND
    before, after = "…" * (start > 0), "…" * (end < len(content))
    return f"{before}{_in_a_line(content[start:end])}{after}"


def _in_a_line(text: str) -> str:
    return printable(" ".join(text.split()), instead="")
