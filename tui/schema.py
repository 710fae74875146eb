"""Schema: the tables of the sessions, and which files have them."""

import sqlite3

from localspec_tui.transaction import transaction

# "lspc": marks a database file as one of localspec.
_APPLICATION_ID = 0x6C737063
# Goes up with each change of the tables, unless a version without it may go on with the file.
VERSION = 9

TABLES = (
    # settings: as JSON, see `session_settings.SessionSettings`. unsent: what was in the text box.
    """
    CREATE TABLE session (
        number INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        title TEXT,
        model TEXT NOT NULL,
        system TEXT,
        settings TEXT NOT NULL,
        unsent TEXT NOT NULL DEFAULT '',
        changed REAL NOT NULL,
        last INTEGER REFERENCES turn DEFERRABLE INITIALLY DEFERRED,
        length INTEGER NOT NULL
    )
    """,
    # `before` does not cascade: SQLite stops at a depth of 1,000, and conversations may be longer.
    # All turns of a session are deleted at once, and `before` is checked afterwards.
    # The other columns are those of `turn_rows.SavedTurn`. tokens, origins: as JSON. seed: as text,
    # because it may have 64 bits without a sign.
    """
    CREATE TABLE turn (
        number INTEGER PRIMARY KEY,
        session INTEGER NOT NULL REFERENCES session ON DELETE CASCADE,
        key TEXT NOT NULL,
        before INTEGER REFERENCES turn DEFERRABLE INITIALLY DEFERRED,
        role TEXT NOT NULL,
        stop_reason TEXT,
        content TEXT NOT NULL,
        thought TEXT NOT NULL,
        raw TEXT NOT NULL,
        spelt TEXT NOT NULL,
        tokens TEXT NOT NULL,
        vocabulary TEXT NOT NULL,
        origins TEXT,
        seed TEXT,
        thinking INTEGER,
        switch INTEGER,
        template TEXT NOT NULL,
        thinking_budget INTEGER,
        edited INTEGER NOT NULL,
        UNIQUE (session, key)
    )
    """,
)
# The images and sounds of turns; older versions know none, and delete them with their turns.
# [start:stop]: of a turn's content. file: the key of its contents, which others may have, too.
_MEDIA = (
    """
    CREATE TABLE media_file (
        key TEXT PRIMARY KEY,
        data BLOB NOT NULL
    )
    """,
    """
    CREATE TABLE media (
        turn INTEGER NOT NULL REFERENCES turn ON DELETE CASCADE,
        start INTEGER NOT NULL,
        stop INTEGER NOT NULL,
        name TEXT NOT NULL,
        file TEXT NOT NULL,
        PRIMARY KEY (turn, start)
    )
    """,
    "CREATE INDEX media_by_file ON media (file)",
    """
    CREATE TRIGGER media_removed AFTER DELETE ON media
    WHEN NOT EXISTS (SELECT 1 FROM media WHERE file = old.file) BEGIN
        DELETE FROM media_file WHERE key = old.file;
    END
    """,
)
# The states of samplers behind turns, as JSON; older versions know none.
_SAMPLER_STATE = """
    CREATE TABLE sampler_state (
        turn INTEGER PRIMARY KEY REFERENCES turn ON DELETE CASCADE,
        state TEXT NOT NULL
    )
    """
_INDEXES = (
    "CREATE INDEX session_by_change ON session (changed)",
    "CREATE INDEX session_by_last ON session (last)",
    "CREATE INDEX turn_by_before ON turn (before)",
)


class UnusableError(sqlite3.Error):
    """The file cannot be used. The message completes a sentence that begins with the file name."""


class DamagedError(UnusableError):
    """The file is not what SQLite wrote."""


def check(connection: sqlite3.Connection) -> None:
    """Raises UnusableError for a file of another program, or of another version of localspec."""
    if _is_empty(connection):
        return
    if pragma(connection, "application_id") != _APPLICATION_ID:
        raise UnusableError("holds no sessions")
    if pragma(connection, "user_version") != VERSION:
        raise UnusableError("is of another version of localspec")


def set_up(connection: sqlite3.Connection) -> None:
    """Create the tables in an empty file, and what a file of an older version lacks."""
    if _is_complete(connection):
        return
    with transaction(connection):
        if _is_empty(connection):
            for statement in (*TABLES, *_INDEXES):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        # Another process may have created them meanwhile.
        if not _has(connection, "media"):
            for statement in _MEDIA:
                connection.execute(statement)
        if not _has(connection, "sampler_state"):
            connection.execute(_SAMPLER_STATE)


def require_tables(connection: sqlite3.Connection) -> None:
    """Raises DamagedError if a table is another one, as after a change of the schema's bits."""
    found = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
    if not {_words(sql) for (sql,) in found}.issuperset(
        map(_words, (*TABLES, *_MEDIA, _SAMPLER_STATE))
    ):
        raise DamagedError("is damaged")


def _words(sql: str) -> tuple[str, ...]:
    """A statement, however it is indented."""
    return tuple(sql.split())


def _is_complete(connection: sqlite3.Connection) -> bool:
    return _has(connection, "media") and _has(connection, "sampler_state")


def _has(connection: sqlite3.Connection, table: str) -> bool:
    found = connection.execute("SELECT name FROM sqlite_master")
    return (table,) in found.fetchall()


def _is_empty(connection: sqlite3.Connection) -> bool:
    [(tables,)] = connection.execute("SELECT count(*) FROM sqlite_master")
    return not tables


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """The value of a setting of the file."""
    [(value,)] = connection.execute(f"PRAGMA {name}")
    return int(value)
