"""Database: the SQLite file of the sessions; several processes may use it at once."""

import os
import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import Thread

from localspec.errors import LocalspecError
from localspec.utils.paths import make_private_folder
from localspec_tui import schema, search_index
from localspec_tui.row_values import decoded
from localspec_tui.schema import DamagedError, UnusableError, pragma
from localspec_tui.transaction import transaction

# Seconds to wait while another process writes, which takes it milliseconds.
_BUSY_TIMEOUT, _SHORT_TIMEOUT = 2.0, 0.2
# Pages up to which the whole file is checked, in less than a second.
_MAX_CHECKED_PAGES = 25_000
# The bytes of free pages from which on the disk gets them back, so many pages at once; between two
# steps others may write, for so many seconds. Nobody waits for the disk.
_MUCH, _STEP, _PAUSE = 16 * 2**20, 64, 0.1
# The value of `auto_vacuum` in files that can give pages back.
_INCREMENTAL = 2
_DAMAGED_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
# While a file is opened, its schema may be what is damaged: SQLite then refuses what this program
# says of tables and columns.
_SCHEMA_CODES = {*_DAMAGED_CODES, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_FORMAT}
# SQLite's messages, and names of a damaged schema, may be no UTF-8.
_ERRORS = (sqlite3.Error, UnicodeDecodeError, OverflowError)


class Database:
    """The tables of `schema`, and the search index.

    problem: one line about the file; None if there is no problem. A file that cannot be used is
    renamed, and a new one is created. If that is not possible, the sessions are in memory only, and
    refusal says why.
    is_kept: whether they are in a file. is_patient: whether a change waits while another process
    writes; if not, it waits a moment, and not even that once it has been in vain.
    """

    def __init__(self, file: Path | None) -> None:
        """Open a file; None is the memory."""
        self.problem: str | None = None
        self.refusal: str | None = None
        self.is_kept, self.is_patient = file is not None, True
        self._file = file or Path(":memory:")
        # Whether the last change has waited in vain.
        self._is_locked = False
        if file is None:
            self._connection = _open(":memory:")
            return
        try:
            self._connection = self._connect()
        except (OSError, *_ERRORS) as error:
            reason = getattr(error, "strerror", None) or error
            self.refusal = f"conversations in {file} cannot be opened: {reason}"
            self.problem = (
                f"conversations cannot be saved in {file}: {reason}; "
                "this one is lost when the chat ends"
            )
            self.is_kept = False
            self._connection = _open(":memory:")
        # A process may have ended meanwhile.
        self.give_back()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Run queries in the block. Raises LocalspecError if SQLite refuses."""
        try:
            yield self._connection
        except _ERRORS as error:
            way_out = "; move the file away to make a new one" if _is_damaged(error) else ""
            raise LocalspecError(f"the sessions in {self._file}: {error}{way_out}") from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Run the block as one transaction. Raises LocalspecError if SQLite refuses.

        A file that was moved or deleted meanwhile is made anew: SQLite would go on with the old.
        """
        if self.is_gone:
            self._reopen()
        wait = _BUSY_TIMEOUT if self.is_patient else 0 if self._is_locked else _SHORT_TIMEOUT
        with self.reading() as connection:
            connection.execute(f"PRAGMA busy_timeout = {int(1000 * wait)}")
            try:
                with transaction(connection):
                    yield connection
                self._is_locked = False
            except sqlite3.Error as error:
                self._is_locked = _code(error) == sqlite3.SQLITE_BUSY
                raise

    def delete_all(self) -> None:
        """Delete all sessions, and what the file and those renamed beside it still hold of them.

        Raises LocalspecError if that is not possible.
        """
        with self.writing() as connection:
            connection.execute("DELETE FROM session")
            # Damaged rows are of no session.
            connection.execute("DELETE FROM media")
            connection.execute("DELETE FROM media_file")
            search_index.forget_deleted(connection)
        with self.reading() as connection:
            # Of a file of an older version, too.
            connection.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
            connection.execute("VACUUM")
            [(is_busy, *_)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if is_busy:
            raise LocalspecError(
                f"another program reads {self._file}, so its log still holds the conversations; "
                "end that program and try again"
            )
        try:
            for file in self._file.parent.glob(f"{self._file.name}.aside-*"):
                file.unlink()
        except OSError as error:
            raise LocalspecError(f"stored conversations cannot be deleted: {error}") from error

    def give_back(self) -> None:
        """Give what deleted conversations took back to the disk, in a thread, if it is much.

        A file of an older version keeps it, and uses it again.
        """
        with suppress(*_ERRORS):
            page, free, kind = (
                pragma(self._connection, name)
                for name in ("page_size", "freelist_count", "auto_vacuum")
            )
            if self.is_kept and page * free >= _MUCH and kind == _INCREMENTAL:
                Thread(target=_shrink, args=(self._file,), daemon=True, name="shrink").start()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @property
    def is_gone(self) -> bool:
        """Whether the file that was opened was moved or deleted since."""
        return self.is_kept and _identity(self._file) != self._opened

    def _reopen(self) -> None:
        """Make the file anew, with what its log holds in the one that was moved."""
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.close()
        try:
            if not self._file.exists():
                for ending in ("-wal", "-shm"):  # of the old file
                    Path(f"{self._file}{ending}").unlink(missing_ok=True)
            self._connection = self._connect()
        except (OSError, *_ERRORS) as error:
            raise LocalspecError(
                f"{self._file} was moved or deleted, and cannot be made anew: {error}"
            ) from error
        self.problem = f"{self._file} was moved or deleted; a new one was made"

    def _connect(self) -> sqlite3.Connection:
        """Open the file, and note which one it is."""
        connection = self._open_or_replace()
        self._opened = _identity(self._file)
        return connection

    def _open_or_replace(self) -> sqlite3.Connection:
        make_private_folder(self._file.parent)
        try:
            if self._file.exists() and not self._file.is_file():
                raise DamagedError("is no file")
            return _open(self._create_file())
        except UnusableError as reason:
            if not isinstance(reason, DamagedError):
                _checkpoint(self._file)
            kept = _move_aside(self._file)
            self.problem = (
                f"{self._file} {reason}; it was renamed to {kept.name}, and a new one was made"
            )
            return _open(self._create_file())

    def _create_file(self) -> Path:
        """Create the file if it is missing. SQLite would let other users read it."""
        os.close(os.open(self._file, os.O_RDWR | os.O_CREAT, 0o600))
        return self._file


def _identity(file: Path) -> tuple[int, int] | None:
    """Which file has this name; None if there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _open(file: Path | str) -> sqlite3.Connection:
    """Open a file, and create what it lacks. Raises UnusableError if that is not possible."""
    connection = sqlite3.connect(file, timeout=_BUSY_TIMEOUT, isolation_level=None)
    connection.text_factory = decoded
    try:
        schema.check(connection)
        _check_pages(connection)
        if not pragma(connection, "page_count"):
            # So free pages can be given back. In a file that is no new one this would write.
            connection.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
        connection.execute("PRAGMA journal_mode = WAL")
        # A crash of the program loses nothing; a crash of the machine may lose the last second.
        connection.execute("PRAGMA synchronous = NORMAL")
        schema.set_up(connection)
        connection.execute("PRAGMA foreign_keys = ON")
        search_index.set_up(connection)
        schema.require_tables(connection)
    except BaseException as error:
        connection.close()
        if _is_damaged(error, _SCHEMA_CODES):
            raise DamagedError("is damaged") from error
        raise
    return connection


def _check_pages(connection: sqlite3.Connection) -> None:
    """Check the whole file, unless it is large. Raises DamagedError."""
    if pragma(connection, "page_count") <= _MAX_CHECKED_PAGES:
        [(result,)] = connection.execute("PRAGMA quick_check(1)")
        if result != "ok":
            raise DamagedError("is damaged")


def _shrink(file: Path) -> None:
    """Remove free pages from a file, until another program holds it or the process ends."""
    name = f"{file.absolute().as_uri()}?mode=rw"
    with (
        suppress(*_ERRORS),
        closing(sqlite3.connect(name, uri=True, timeout=_BUSY_TIMEOUT)) as connection,
    ):
        connection.execute("PRAGMA synchronous = NORMAL")
        before = 0
        while (free := pragma(connection, "freelist_count")) not in (0, before):
            connection.executescript(f"PRAGMA incremental_vacuum({_STEP})")
            before = free
            time.sleep(_PAUSE)
        # It would wait for readers while nobody may write.
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _is_damaged(error: BaseException, codes: Collection[int] = _DAMAGED_CODES) -> bool:
    return isinstance(error, UnicodeDecodeError) or _code(error) in codes


def _code(error: BaseException) -> int:
    """The kind of an error of SQLite, which is the lower byte of its code; 0 of any other error."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _move_aside(file: Path) -> Path:
    """Rename a file, and its log, to a name that is free. Raises OSError."""
    names = (file.with_name(f"{file.name}.aside-{number}") for number in count(1))
    kept = next(name for name in names if not name.exists())
    for end in ("-wal", "-shm", ""):
        part = file.with_name(file.name + end)
        if part.exists():
            part.rename(kept.with_name(kept.name + end))
    return kept


def _checkpoint(file: Path) -> None:
    """Write the log into the file. Raises sqlite3.Error if another process uses the file."""
    with closing(sqlite3.connect(file, timeout=_BUSY_TIMEOUT)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
