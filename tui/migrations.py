"""Migrations: creates the tables of the sessions, and updates files of older versions."""

import sqlite3
from collections.abc import Sequence

from localspec_tui.transaction import transaction

# "lspc": marks a database file as one of localspec.
_APPLICATION_ID = 0x6C737063

_FIRST = (
    f"PRAGMA application_id = {_APPLICATION_ID}",
    """
    CREATE TABLE session (
        number INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        title TEXT,
        model TEXT NOT NULL,
        system TEXT,
        changed REAL NOT NULL,
        last INTEGER REFERENCES turn DEFERRABLE INITIALLY DEFERRED,
        length INTEGER NOT NULL
    )
    """,
    "CREATE INDEX session_by_change ON session (changed)",
    # `before` does not cascade: SQLite stops at a depth of 1,000, and conversations may be longer.
    # All turns of a session are deleted at once, and `before` is checked afterwards.
    """
    CREATE TABLE turn (
        number INTEGER PRIMARY KEY,
        session INTEGER NOT NULL REFERENCES session ON DELETE CASCADE,
        key TEXT NOT NULL,
        before INTEGER REFERENCES turn DEFERRABLE INITIALLY DEFERRED,
        role TEXT NOT NULL,
        content TEXT NOT NULL,
        thought TEXT NOT NULL,
        raw TEXT NOT NULL,
        spelt TEXT NOT NULL,
        tokens TEXT NOT NULL,
        vocabulary TEXT NOT NULL,
        stop_reason TEXT,
        origins TEXT,
        UNIQUE (session, key)
    )
    """,
    "CREATE INDEX turn_by_before ON turn (before)",
    "CREATE INDEX session_by_last ON session (last)",
)

# JSON: the drafters and the sampling, see `session_settings.SessionSettings`.
_SETTINGS = ("ALTER TABLE session ADD COLUMN settings TEXT",)

# What was in the text box when the session was left.
_UNSENT = ("ALTER TABLE session ADD COLUMN unsent TEXT",)

# That an answer was written with, as text: it may have 64 bits without a sign.
_SEED = ("ALTER TABLE turn ADD COLUMN seed TEXT",)

# Whether an answer's prompt ended with an opening reasoning tag: 0 or 1.
_THINKING = ("ALTER TABLE turn ADD COLUMN thinking INTEGER",)

# Whether reasoning was switched on in an answer's prompt: 0 or 1.
_SWITCH = ("ALTER TABLE turn ADD COLUMN switch INTEGER",)

# The chat template and the thinking budget that an answer was begun with.
_TEMPLATE = (
    "ALTER TABLE turn ADD COLUMN template TEXT",
    "ALTER TABLE turn ADD COLUMN thinking_budget INTEGER",
)

# How many tokens of an answer, from the first, are a text that the user has edited.
_EDITED = ("ALTER TABLE turn ADD COLUMN edited INTEGER",)

_COLUMNS = {
    "session": "number, key, title, model, system, changed, last, length, settings, unsent",
    "turn": "number, session, key, before, role, content, thought, raw, spelt, tokens, "
    "vocabulary, stop_reason, origins, seed, thinking, switch, template, thinking_budget, "
    "edited",
}

# The statements that make each version from the version before; version 0 is an empty file.
STEPS: Sequence[Sequence[str]] = (
    _FIRST,
    _SETTINGS,
    _UNSENT,
    _SEED,
    _THINKING,
    _SWITCH,
    _TEMPLATE,
    _EDITED,
)


class UnusableError(sqlite3.Error):
    """The file cannot be used. The message completes a sentence that begins with the file name."""


class DamagedError(UnusableError):
    """The file is not what SQLite wrote."""


def check(connection: sqlite3.Connection, steps: Sequence[Sequence[str]] = STEPS) -> None:
    """Raises UnusableError for a file of another program, or of a newer localspec."""
    [(tables,)] = connection.execute("SELECT count(*) FROM sqlite_master")
    if tables and _pragma(connection, "application_id") != _APPLICATION_ID:
        raise UnusableError("holds no sessions")
    if _pragma(connection, "user_version") > len(steps):
        raise UnusableError("is of a newer localspec")


def migrate(connection: sqlite3.Connection, steps: Sequence[Sequence[str]] = STEPS) -> None:
    """Update a file to the newest version, in one transaction."""
    if _pragma(connection, "user_version") == len(steps):
        return
    with transaction(connection):
        # Another process may have updated the file meanwhile.
        for step in steps[_pragma(connection, "user_version") :]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(steps)}")


def require_columns(connection: sqlite3.Connection) -> None:
    """Raises sqlite3.Error if a table lacks a column, as after a change of the schema's bits."""
    for table, columns in _COLUMNS.items():
        connection.execute(f"SELECT {columns} FROM {table} LIMIT 1").fetchall()


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    [(value,)] = connection.execute(f"PRAGMA {name}")
    return int(value)
