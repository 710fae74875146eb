"""Search index: finds sessions by words, with SQLite's FTS5; without FTS5 all turns are read."""

import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from string import punctuation

from localspec.utils.format import printable
from localspec_tui.sanitized import single_line
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
# Limits of a query, because SQLite has limits too.
_MAX_LETTERS, _MAX_WORDS = 1000, 32
# Letters of a snippet before and after the word.
_SNIPPET_LETTERS = 40


@dataclass(frozen=True, slots=True)
class Hit:
    """A turn that was found. snippet: a line around the first word. key: of the turn."""

    snippet: str
    key: str


def set_up(connection: sqlite3.Connection) -> None:
    """Create the index if it is missing or incomplete. Without FTS5, remove its triggers.

    The index is complete only while the triggers exist: the file may have been written without
    FTS5.
    """
    if has_fts5(connection) == _is_complete(connection):
        return
    with transaction(connection):
        for trigger in _TRIGGERS:
            connection.execute(f"DROP TRIGGER IF EXISTS {trigger}")
        if has_fts5(connection):
            connection.execute("DROP TABLE IF EXISTS found")
            for statement in _INDEX:
                connection.execute(statement)


def forget_deleted(connection: sqlite3.Connection) -> None:
    """Build the index anew: it keeps words of rows that were deleted."""
    if has_fts5(connection):
        connection.execute("INSERT INTO found (found) VALUES ('rebuild')")


def has_fts5(connection: sqlite3.Connection) -> bool:
    """Whether SQLite was built with FTS5."""
    modules = "SELECT count(*) FROM pragma_module_list WHERE name = 'fts5'"
    return bool(connection.execute(modules).fetchone()[0])


def search(connection: sqlite3.Connection, text: str) -> Mapping[int, Hit]:
    """The latest turn that contains all words of a text, by the session's row number.

    The last word may be incomplete. If no turn contains the words as words, parts of words count
    too: not every language separates words, and some queries have no letters.
    """
    words = printable(text[:_MAX_LETTERS], instead=" ").split()[:_MAX_WORDS]
    if not words:
        return {}
    found = _by_words(connection, words) if _is_complete(connection) else {}
    return found or _by_parts(connection, words)


def _is_complete(connection: sqlite3.Connection) -> bool:
    query = "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'found%'"
    return bool(connection.execute(query).fetchone()[0] == len(_TRIGGERS))


def _by_words(connection: sqlite3.Connection, words: list[str]) -> dict[int, Hit]:
    # In quotation marks, FTS5 gives no character a meaning except the marks.
    quoted = " ".join('"' + word.replace('"', '""') + '"' for word in words)
    query = quoted + "*" if words[-1][-1].isalnum() else quoted
    return _hits(
        connection,
        "SELECT session, max(number) AS number FROM found JOIN turn ON number = found.rowid "
        "WHERE found MATCH ? GROUP BY session",
        [query],
        words[0],
    )


def _by_parts(connection: sqlite3.Connection, words: list[str]) -> dict[int, Hit]:
    like = " AND ".join(["content LIKE ? ESCAPE '\\'"] * len(words))
    return _hits(
        connection,
        f"SELECT session, max(number) AS number FROM turn WHERE {like} GROUP BY session",
        [f"%{_escape_like(word)}%" for word in words],
        words[0],
    )


def _hits(
    connection: sqlite3.Connection, latest: str, values: list[str], word: str
) -> dict[int, Hit]:
    """Hits around a word. latest: a query for the latest matching turn of each session."""
    rows = connection.execute(
        f"WITH latest AS ({latest}) "
        "SELECT latest.session, content, turn.key FROM latest JOIN turn USING (number)",
        values,
    )
    return {session: Hit(_snippet(content, word), key) for session, content, key in rows}


def _escape_like(word: str) -> str:
    for special in "\\%_":
        word = word.replace(special, f"\\{special}")
    return word


def _snippet(content: str, word: str) -> str:
    """The text around a word, or the start of the content if only FTS5 can match the word."""
    found = re.search(re.escape(word.strip(punctuation) or word), content, re.IGNORECASE)
    at, end = found.span() if found else (0, 0)
    start, end = max(at - _SNIPPET_LETTERS, 0), end + _SNIPPET_LETTERS
    before, after = "…" * (start > 0), "…" * (end < len(content))
    return f"{before}{single_line(content[start:end])}{after}"
