"""Archive: the sessions of the past, on disk."""

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from localspec.conversation.turns import Conversation, Turn
from localspec.errors import InvalidValueError, LocalspecError
from localspec.utils.format import printable
from localspec.utils.paths import data_folder
from localspec_tui import search_index, turn_rows
from localspec_tui.database import Database
from localspec_tui.turn_rows import Run, State, storable

__all__ = ["Archive", "Opened", "Run", "Summary"]

_KEY_LETTERS = 12
_TITLE_LETTERS = 60
_UNTITLED = "untitled"
# Letters that join others to one sign.
_JOINERS = "\u200c\u200d"


@dataclass(frozen=True, slots=True)
class Summary:
    """A session in a list. changed: when, with a time zone. turns: of the branch that goes on."""

    key: str
    title: str
    model: str
    changed: datetime
    turns: int


@dataclass(frozen=True, slots=True)
class Opened:
    """A session to go on with. origins: of answers, by the keys of their turns."""

    key: str
    title: str
    model: str
    system: str | None
    conversation: Conversation
    origins: Mapping[str, Sequence[Run]]


Summaries = list[Summary]
Found = list[tuple[Summary, str]]


@dataclass(slots=True)
class _Known:
    """A session that was begun or opened here; states and last: what the file has of it."""

    model: str
    system: str | None
    title: str | None = None
    states: dict[str, State] = field(default_factory=dict)
    last: str | None = None


class Archive:
    """Past sessions in a file; for one thread. Close it at the end.

    problem: one line about the file, or about what is not saved yet; None if all is well.
    Several processes may use a file at once.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._database = Database(file or data_folder("sessions") / "sessions.sqlite3")
        self.problem = self._database.problem
        self._known: dict[str, _Known] = {}

    def begin(self, model: str, system: str | None) -> str:
        """The key of a new session, which is in no list before something of it is saved."""
        key = uuid4().hex[:_KEY_LETTERS]
        self._known[key] = _Known(model, system)
        return key

    def save(
        self,
        key: str,
        turns: Iterable[Turn],
        last: Turn | None,
        origins: Mapping[str, Sequence[Run]] | None = None,
    ) -> None:
        """Keep what is new or changed of these turns, of `last`, and of those before them.

        key: of a session that was begun or opened here; if it was deleted, it is there again. last:
        where the conversation goes on. origins: by the keys of turns; those of others stay as they
        are. What cannot be saved becomes `problem`, and is tried again with the next call.
        """
        known, now_last = self._known[key], last.key if last else None
        turns, origins = [*turns, *([last] if last else [])], origins or {}
        unsaved = turn_rows.unsaved(turns, known.states, origins)
        if not unsaved and now_last == known.last:
            return
        try:
            with self._database.changing() as connection:
                number, is_new = _row(connection, key, known)
                if is_new and known.states:  # it was deleted
                    known.states.clear()
                    unsaved = turn_rows.unsaved(turns, {}, origins)
                for turn, state in unsaved:
                    turn_rows.put(connection, number, turn, state)
                _note(connection, number, last)
        except LocalspecError as error:
            self.problem = f"not saved yet: {error}"
            return
        known.states.update((turn.key, state) for turn, state in unsaved)
        known.last = now_last
        self.problem = self._database.problem

    def open(self, key: str) -> Opened:
        """A session of the past. An answer that was never finished is `interrupted`.

        Raises InvalidValueError if there is none of this key.
        """
        with self._database.reading() as connection:
            session = connection.execute(
                "SELECT number, title, model, system, last FROM session WHERE key = ?", [key]
            ).fetchone()
            if session is None:
                raise _unknown(key)
            number, title, model, system, last = session
            conversation, states = turn_rows.conversation_of(connection, number, last)
        here = conversation.last.key if conversation.last else None
        self._known[key] = _Known(model, system, title, states, here)
        origins = turn_rows.origins_of(states)
        return Opened(key, title or _UNTITLED, model, system, conversation, origins)

    def list(self, limit: int | None = None) -> Summaries:
        """The newest first."""
        return [summary for _, summary in self._summaries(limit)]

    def search(self, words: str) -> Found:
        """The sessions with a turn that has all these words, the newest first, and a piece of it.

        The last word may be the beginning of one.
        """
        with self._database.reading() as connection:
            found = search_index.find(connection, words)
        summaries = self._summaries() if found else ()
        return [(summary, found[number]) for number, summary in summaries if number in found]

    def rename(self, key: str, title: str) -> None:
        """Raises InvalidValueError for an empty title, or if there is no such session."""
        title = _in_a_line(title)
        if not title:
            raise InvalidValueError("the title is empty; give it a letter or two")
        if key in self._known:
            self._known[key].title = title
        self._update(key, "UPDATE session SET title = ? WHERE key = ?", title)

    def set_model(self, key: str, model: str) -> None:
        """The session goes on with this one. Raises InvalidValueError if there is no session."""
        if key in self._known:
            self._known[key].model = model
        self._update(key, "UPDATE session SET model = ? WHERE key = ?", storable(model))

    def set_system(self, key: str, system: str | None) -> None:
        """It goes on with this system prompt. Raises InvalidValueError if there is no session."""
        if key in self._known:
            self._known[key].system = system
        value = system and storable(system)
        self._update(key, "UPDATE session SET system = ? WHERE key = ?", value)

    def delete(self, key: str) -> None:
        """Delete a session, if it is there."""
        with self._database.changing() as connection:
            connection.execute("DELETE FROM session WHERE key = ?", [key])

    def latest(self) -> str | None:
        """The key of the session that was changed last."""
        return next((summary.key for _, summary in self._summaries(1)), None)

    def close(self) -> None:
        """Nothing can be done with it from here on."""
        self._database.close()

    def _summaries(self, limit: int | None = None) -> Iterator[tuple[int, Summary]]:
        """With the numbers of their rows."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT number, key, title, model, changed, length FROM session "
                "ORDER BY changed DESC, number DESC LIMIT ?",
                [-1 if limit is None else limit],
            ).fetchall()
        for number, key, title, model, changed, length in rows:
            when = datetime.fromtimestamp(changed, UTC).astimezone()
            yield number, Summary(key, title or _UNTITLED, model, when, length)

    def _update(self, key: str, statement: str, value: str | None) -> None:
        with self._database.changing() as connection:
            changed = connection.execute(statement, [value, key]).rowcount
        if not changed and key not in self._known:
            raise _unknown(key)


def _row(connection: sqlite3.Connection, key: str, known: _Known) -> tuple[int, bool]:
    """The number of the session's row, and whether it was made now."""
    values = [key, known.title, storable(known.model), known.system and storable(known.system)]
    made = connection.execute(
        "INSERT OR IGNORE INTO session (key, title, model, system, changed, length) "
        "VALUES (?, ?, ?, ?, 0, 0)",
        values,
    ).rowcount
    [(number,)] = connection.execute("SELECT number FROM session WHERE key = ?", [key])
    return number, made == 1


def _note(connection: sqlite3.Connection, number: int, last: Turn | None) -> None:
    """What the row of a session says about its turns."""
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
    """The first line that says something, shortened between words if that is possible."""
    lines = (_in_a_line(line) for line in text.splitlines())
    line = next((line for line in lines if line), _UNTITLED)
    if len(line) <= _TITLE_LETTERS:
        return line
    start = line[:_TITLE_LETTERS]
    whole_words = start.rpartition(" ")[0]
    return (whole_words if len(whole_words) > _TITLE_LETTERS // 2 else start[:-1]) + "…"


def _in_a_line(text: str) -> str:
    return printable(" ".join(text.split()), also=_JOINERS, instead="")


def _unknown(key: str) -> InvalidValueError:
    return InvalidValueError(f"there is no session {key!r}; the list of sessions has all there are")
