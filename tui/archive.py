"""Archive: the saved sessions."""

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from localspec.conversation.turns import Conversation, Turn
from localspec.errors import InvalidValueError, LocalspecError
from localspec.utils.paths import data_folder
from localspec_tui import search_index, turn_rows
from localspec_tui.database import Database
from localspec_tui.origins import OriginSegment
from localspec_tui.sanitized import single_line
from localspec_tui.turn_rows import SavedTurn, without_surrogates

_KEY_LETTERS = 12
_TITLE_LETTERS = 60
_UNTITLED = "untitled"


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A session as a list shows it. changed: with a time zone. turns: of the active branch."""

    key: str
    title: str
    model: str
    changed: datetime
    turns: int


@dataclass(frozen=True, slots=True)
class SavedSession:
    """A session with all its turns. origins: of its answers, by the key of the turn."""

    key: str
    title: str
    model: str
    system: str | None
    conversation: Conversation
    origins: Mapping[str, Sequence[OriginSegment]]


Summaries = list[SessionSummary]
SearchResults = list[tuple[SessionSummary, str]]


@dataclass(slots=True)
class _Session:
    """A session that was created or opened here. saved, last: what the database has of it.

    title: None until the first save or `rename`. saved: by the key of the turn. last: key of the
    turn where the active branch ends.
    """

    model: str
    system: str | None
    title: str | None = None
    saved: dict[str, SavedTurn] = field(default_factory=dict)
    last: str | None = None


class Archive:
    """The sessions in a database file; for one thread. Close it at the end.

    problem: one line about the file, or about what is not saved yet; None if there is no problem.
    Several processes may use one file at once.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._database = Database(file or data_folder("sessions") / "sessions.sqlite3")
        self.problem = self._database.problem
        self._sessions: dict[str, _Session] = {}

    def create(self, model: str, system: str | None) -> str:
        """Create a session and return its key. It is not listed before its first turn is saved."""
        key = uuid4().hex[:_KEY_LETTERS]
        self._sessions[key] = _Session(model, system)
        return key

    def save(
        self,
        key: str,
        turns: Iterable[Turn],
        last: Turn | None,
        origins: Mapping[str, Sequence[OriginSegment]] | None = None,
    ) -> None:
        """Save these turns, `last` and their ancestors, as far as they are new or have changed.

        key: of a session that was created or opened here; if it was deleted since, it is saved
        again. last: where the active branch ends. origins: by the key of the turn; other turns keep
        theirs. If SQLite refuses, that becomes `problem`, and the next call tries again.
        """
        session, last_key = self._sessions[key], last.key if last else None
        turns, origins = [*turns, *([last] if last else [])], origins or {}
        unsaved = turn_rows.unsaved(turns, session.saved, origins)
        if not unsaved and last_key == session.last:
            return
        try:
            with self._database.writing() as connection:
                number, is_new = _session_row(connection, key, session)
                if is_new and session.saved:  # it was deleted
                    session.saved.clear()
                    unsaved = turn_rows.unsaved(turns, {}, origins)
                for turn, columns in unsaved:
                    turn_rows.upsert(connection, number, turn, columns)
                _update_session_row(connection, number, last)
        except LocalspecError as error:
            self.problem = f"not saved yet: {error}"
            return
        session.saved.update((turn.key, columns) for turn, columns in unsaved)
        session.last = last_key
        self.problem = self._database.problem

    def open(self, key: str) -> SavedSession:
        """Read a session, to continue it. An answer that was never finished is "interrupted".

        Raises InvalidValueError for an unknown key.
        """
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT number, title, model, system, last FROM session WHERE key = ?", [key]
            ).fetchone()
            if row is None:
                raise _unknown(key)
            number, title, model, system, last = row
            conversation, saved = turn_rows.load_conversation(connection, number, last)
        last_key = conversation.last.key if conversation.last else None
        self._sessions[key] = _Session(model, system, title, saved, last_key)
        origins = turn_rows.origins_of(saved)
        return SavedSession(key, title or _UNTITLED, model, system, conversation, origins)

    def list(self, limit: int | None = None) -> Summaries:
        """Up to `limit` sessions, the one that was changed last first."""
        return [summary for _, summary in self._summaries(limit)]

    def search(self, words: str) -> SearchResults:
        """The sessions with a turn that contains all these words, each with a snippet of the turn.

        The session that was changed last comes first. The last word may be incomplete.
        """
        with self._database.reading() as connection:
            snippets = search_index.search(connection, words)
        summaries = self._summaries() if snippets else ()
        return [(summary, snippets[row]) for row, summary in summaries if row in snippets]

    def rename(self, key: str, title: str) -> None:
        """Set the title of a session. Raises InvalidValueError: empty title, or unknown key."""
        title = single_line(title)
        if not title:
            raise InvalidValueError("the title is empty; give it a letter or two")
        if key in self._sessions:
            self._sessions[key].title = title
        self._update(key, "UPDATE session SET title = ? WHERE key = ?", title)

    def set_model(self, key: str, model: str) -> None:
        """Set the model of a session. Raises InvalidValueError for an unknown key."""
        if key in self._sessions:
            self._sessions[key].model = model
        self._update(key, "UPDATE session SET model = ? WHERE key = ?", without_surrogates(model))

    def set_system(self, key: str, system: str | None) -> None:
        """Set the system prompt of a session. Raises InvalidValueError for an unknown key."""
        if key in self._sessions:
            self._sessions[key].system = system
        value = system and without_surrogates(system)
        self._update(key, "UPDATE session SET system = ? WHERE key = ?", value)

    def delete(self, key: str) -> None:
        """Delete a session. An unknown key is not an error."""
        with self._database.writing() as connection:
            connection.execute("DELETE FROM session WHERE key = ?", [key])

    def latest(self) -> str | None:
        """The key of the session that was changed last, or None."""
        return next((summary.key for _, summary in self._summaries(1)), None)

    def close(self) -> None:
        """Close the file. Nothing else works after that."""
        self._database.close()

    def _summaries(self, limit: int | None = None) -> Iterator[tuple[int, SessionSummary]]:
        """Row numbers and summaries, the session that was changed last first."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT number, key, title, model, changed, length FROM session "
                "ORDER BY changed DESC, number DESC LIMIT ?",
                [-1 if limit is None else limit],
            ).fetchall()
        for number, key, title, model, changed, length in rows:
            when = datetime.fromtimestamp(changed, UTC).astimezone()
            yield number, SessionSummary(key, title or _UNTITLED, model, when, length)

    def _update(self, key: str, statement: str, value: str | None) -> None:
        with self._database.writing() as connection:
            changed = connection.execute(statement, [value, key]).rowcount
        if not changed and key not in self._sessions:
            raise _unknown(key)


def _session_row(connection: sqlite3.Connection, key: str, session: _Session) -> tuple[int, bool]:
    """Insert the row of a session if there is none. Returns its number, and whether it is new."""
    model, system = session.model, session.system
    inserted = connection.execute(
        "INSERT OR IGNORE INTO session (key, title, model, system, changed, length) "
        "VALUES (?, ?, ?, ?, 0, 0)",
        [key, session.title, without_surrogates(model), system and without_surrogates(system)],
    ).rowcount
    [(number,)] = connection.execute("SELECT number FROM session WHERE key = ?", [key])
    return number, inserted == 1


def _update_session_row(connection: sqlite3.Connection, number: int, last: Turn | None) -> None:
    """Set what the row of a session says about its turns."""
    branch = last.path if last else []
    first = next((turn.content for turn in branch if turn.role == "user"), None)
    connection.execute(
        "UPDATE session SET title = coalesce(title, ?), changed = ?, length = ?, "
        "last = (SELECT number FROM turn WHERE session = ? AND key = ?) WHERE number = ?",
        [
            first and _title(first),
            time.time(),
            len(branch),
            number,
            last.key if last else None,
            number,
        ],
    )


def _title(text: str) -> str:
    """The first line with words in it, shortened between words if possible."""
    lines = (single_line(line) for line in text.splitlines())
    line = next((line for line in lines if line), _UNTITLED)
    if len(line) <= _TITLE_LETTERS:
        return line
    start = line[:_TITLE_LETTERS]
    whole_words = start.rpartition(" ")[0]
    return (whole_words if len(whole_words) > _TITLE_LETTERS // 2 else start[:-1]) + "…"


def _unknown(key: str) -> InvalidValueError:
    return InvalidValueError(f"there is no session {key!r}; the list of sessions has all there are")
