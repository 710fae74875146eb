"""Database: a file of SQLite for one user, which several processes may have open at once."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.utils.paths import make_private_folder
from localspec_tui import search_index
from localspec_tui.migrations import DamagedError, UnusableError, check, migrate
from localspec_tui.transaction import transaction

# Seconds to wait while another process writes, which takes it milliseconds.
_PATIENCE = 2.0
# Every page of a file is looked at, unless that takes more than an instant.
_MOST_PAGES = 25_000
_BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class Database:
    """The tables of `migrations`, and the index over them.

    problem: one line about what is not as it should be with the file, None if nothing is. A file
    that cannot be used is kept under another name; where there can be none, all is in memory.
    """

    def __init__(self, file: Path) -> None:
        self.problem: str | None = None
        self._file = file
        try:
            self._connection = self._connect()
        except (OSError, sqlite3.Error) as error:
            reason = getattr(error, "strerror", None) or error
            self.problem = (
                f"sessions cannot be kept in {file}: {reason}; this one is lost when the chat ends"
            )
            self._connection = _opened(":memory:")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Raises LocalspecError for what SQLite refuses."""
        try:
            yield self._connection
        except sqlite3.Error as error:
            way_out = "; move the file away to begin anew" if _is_broken(error) else ""
            raise LocalspecError(f"the sessions in {self._file}: {error}{way_out}") from error

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """All that is done with it or nothing. Raises LocalspecError for what SQLite refuses."""
        with self.reading() as connection, transaction(connection):
            yield connection

    def close(self) -> None:
        """Nothing can be done with it from here on."""
        self._connection.close()

    def _connect(self) -> sqlite3.Connection:
        make_private_folder(self._file.parent)
        try:
            return _opened(self._created())
        except UnusableError as reason:
            if not isinstance(reason, DamagedError):
                _fold_in(self._file)
            kept = _put_aside(self._file)
            self.problem = f"{self._file} {reason}; it is kept as {kept.name}, and a new one begins"
            return _opened(self._created())

    def _created(self) -> Path:
        """The file, which SQLite itself would make readable by others."""
        os.close(os.open(self._file, os.O_RDWR | os.O_CREAT, 0o600))
        return self._file


def _opened(file: Path | str) -> sqlite3.Connection:
    """Raises UnusableError if it holds something else than sessions."""
    connection = sqlite3.connect(file, timeout=_PATIENCE, isolation_level=None)
    try:
        check(connection)
        _look_through(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        # What was written survives a crash of the program; that of the machine may cost a second.
        connection.execute("PRAGMA synchronous = NORMAL")
        migrate(connection)
        connection.execute("PRAGMA foreign_keys = ON")
        search_index.keep(connection)
    except BaseException as error:
        connection.close()
        if _is_broken(error):
            raise DamagedError("is damaged") from error
        raise
    return connection


def _look_through(connection: sqlite3.Connection) -> None:
    """Raises DamagedError."""
    [(pages,)] = connection.execute("PRAGMA page_count")
    if pages <= _MOST_PAGES:
        [(said,)] = connection.execute("PRAGMA quick_check(1)")
        if said != "ok":
            raise DamagedError("is damaged")


def _is_broken(error: BaseException) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    # The lower byte is the kind of error, the upper ones tell more.
    return code is not None and code & 0xFF in _BROKEN


def _put_aside(file: Path) -> Path:
    """Rename a file to one that is not there yet. Raises OSError."""
    names = (file.with_name(f"{file.name}.aside-{number}") for number in count(1))
    kept = next(name for name in names if not name.exists())
    for end in ("-wal", "-shm", ""):
        part = file.with_name(file.name + end)
        if part.exists():
            part.rename(kept.with_name(kept.name + end))
    return kept


def _fold_in(file: Path) -> None:
    """Put what is still in the log into the file. Raises sqlite3.Error where it is in use."""
    with closing(sqlite3.connect(file, timeout=_PATIENCE)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
