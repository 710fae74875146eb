"""Archive: the saved sessions."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from localspec.conversation.turns import Conversation, Turn
from localspec.errors import InvalidValueError, LocalspecError
from localspec.utils.format import counted
from localspec.utils.paths import data_folder
from localspec_tui import media_rows, search_index, session_rows, turn_rows
from localspec_tui.database import Database
from localspec_tui.origins import OriginSegment
from localspec_tui.row_values import count_of, moment_of, text_or
from localspec_tui.sanitized import single_line
from localspec_tui.saved_session import SavedSession, SessionSummary
from localspec_tui.search_index import Hit
from localspec_tui.session_rows import UNTITLED, OpenSession, title_in, title_of
from localspec_tui.session_settings import SessionSettings
from localspec_tui.turn_rows import SavedTurn, without_surrogates

_KEY_LETTERS = 12
_DEFAULTS = SessionSettings()
OVERTAKEN = (
    "another window has gone on with this conversation; its messages are another variant (←/→) "
    "when the conversation is opened again"
)
DELETED = (
    "another window has deleted this conversation; it is kept again, whole, because it goes on here"
)

Summaries = list[SessionSummary]
SearchResults = list[tuple[SessionSummary, Hit]]


def archive_file() -> Path:
    """Where the user's sessions are kept; the file may not exist."""
    return data_folder("sessions") / "sessions.sqlite3"


class Archive:
    """The sessions in a database file; for one thread. Close it at the end.

    file: where they are kept. Several processes may use one file at once.
    """

    def __init__(self, file: Path | None = None, *, private: bool = False) -> None:
        """Open a file, by default the user's. private: keep nothing, whatever the file."""
        self.file = file or archive_file()
        self._database = Database(None if private else self.file)
        self._problem = self._database.problem
        self._sessions: dict[str, OpenSession] = {}

    @property
    def problem(self) -> str | None:
        """One line about what is wrong; None if nothing is.

        It is about what is not saved yet, about the file, about damaged rows, which are left out,
        or about another window that goes on with the session that was just saved.
        """
        failure = next((each.failure for each in self._sessions.values() if each.failure), None)
        return f"not saved yet: {failure}" if failure else self._problem

    def set_patient(self, patient: bool) -> None:
        """Set whether changes wait while another process writes, as they do at first.

        A screen does not wait with them: what it saves is tried again.
        """
        self._database.is_patient = patient

    @property
    def is_kept(self) -> bool:
        """Whether the sessions are in a file, and not in memory only."""
        return self._database.is_kept

    @property
    def refusal(self) -> str | None:
        """Why the file cannot be opened, so that nothing is kept; None if it can."""
        return self._database.refusal

    def require_file(self) -> None:
        """Raises LocalspecError if the file cannot be opened: its sessions are not those here."""
        if self.refusal:
            raise LocalspecError(self.refusal)

    def is_stored(self, key: str) -> bool:
        """Whether the file has a session that was created or opened here, or a part of it.

        Another process may have deleted it.
        """
        if not (self.is_kept and self._sessions[key].is_stored):
            return False
        with suppress(LocalspecError), self._database.reading() as connection:
            query = "SELECT count(*) FROM session WHERE key = ?"
            return bool(connection.execute(query, [key]).fetchone()[0])
        return True

    @property
    def failures(self) -> Mapping[str, str]:
        """Why parts of sessions that were created or opened here are not in the file, by key."""
        return {key: each.failure for key, each in self._sessions.items() if each.failure}

    def create(
        self,
        model: str,
        system: str | None,
        settings: SessionSettings = _DEFAULTS,
        conversation: Conversation | None = None,
    ) -> str:
        """Create a session and return its key. It is not listed before its first turn is saved.

        conversation: whose turns will be saved; `live` returns it, and it is saved whole where the
        session was deleted meanwhile.
        """
        key = uuid4().hex[:_KEY_LETTERS]
        self._sessions[key] = OpenSession(model, system, settings, conversation or Conversation())
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
        again, whole. last: where the active branch ends. origins: by the key of the turn; other
        turns keep theirs. If SQLite refuses, that becomes `problem`, and the next call and
        `save_rest` try again.
        """
        session = self._sessions[key]
        session.title, session.end = session.title or title_of(last), last
        session.changed = time.time()
        for turn in [*turns, *([last] if last else [])]:
            session.unsaved[turn.key] = turn
        session.origins.update(origins or {})
        self._save(key, session)

    def save_rest(self, current: str | None = None) -> None:
        """Save what is not saved yet, of all sessions.

        current: key of a session that is saved again if the file was moved or deleted.
        """
        if current and self._database.is_gone:
            self._sessions[current].is_described = False
        for key, session in self._sessions.items():
            if not session.is_saved:
                self._save(key, session)

    def _save(self, key: str, session: OpenSession) -> None:
        """Save what is not saved of a session."""
        turns, last_key = session.unsaved.values(), session.end.key if session.end else None
        unsaved = turn_rows.unsaved(turns, session.saved, session.origins)
        if unsaved or last_key != session.last or not session.is_saved:
            try:
                self._write(key, session, unsaved)
            except LocalspecError as error:
                session.failure = str(error)
                return
        session.last, session.is_described, session.failure = last_key, True, None
        session.unsaved.clear()
        session.origins.clear()

    def _write(self, key: str, session: OpenSession, unsaved: list[tuple[Turn, SavedTurn]]) -> None:
        with self._database.writing() as connection:
            number, is_new = session_rows.insert(connection, key, session)
            last_saved = session_rows.last_key(connection, number)
            was_deleted = is_new and bool(session.saved)
            if was_deleted:
                origins = turn_rows.origins_of(session.saved) | session.origins
                turns = [*session.conversation.everything(), *(turn for turn, _ in unsaved)]
                unsaved = turn_rows.unsaved(turns, {}, origins)
            for turn, columns in unsaved:
                turn_rows.upsert(connection, number, turn, columns)
            session_rows.update(connection, number, session)
        session.is_stored = True
        if was_deleted:
            session.saved.clear()
        session.saved.update((turn.key, columns) for turn, columns in unsaved)
        is_overtaken = not is_new and session.is_overtaken(last_saved)
        news = OVERTAKEN if is_overtaken else self._database.problem
        self._problem = news or (DELETED if was_deleted else None)

    def open(self, key: str) -> SavedSession:
        """Read a session, to continue it here. Raises InvalidValueError for an unknown key.

        An answer that was never finished is "interrupted".
        """
        if key in self.failures:
            self._save(key, self._sessions[key])
        if key in self.failures:
            return self.live(key)
        session, self._sessions[key] = self._read(key)
        return session

    def read(self, key: str) -> SavedSession:
        """What `open` returns; what is saved of a session that goes on here stays known."""
        return self._read(key)[0]

    def live(self, key: str) -> SavedSession:
        """A session that was created or opened here as it is now, saved or not, without `unsent`.

        An answer that is being written has no stop reason.
        """
        session = self._sessions[key]
        return SavedSession(
            key,
            session.title or UNTITLED,
            session.model,
            session.system,
            session.conversation,
            session.settings,
            turn_rows.origins_of(session.saved) | session.origins,
            "",
        )

    def _read(self, key: str) -> tuple[SavedSession, OpenSession]:
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT number, title, model, system, last, settings, unsent FROM session "
                "WHERE key = ?",
                [key],
            ).fetchone()
            if row is None:
                raise _unknown(key)
            number, title, model, system, last, written, unsent = row
            conversation, saved, lost = turn_rows.load_conversation(connection, number, last)
        last_key = conversation.last.key if conversation.last else None
        settings = SessionSettings.parse(written)
        title = text_or(title, "") or None
        model, system = text_or(model, ""), text_or(system, "") or None
        session = OpenSession(
            model,
            system,
            settings,
            conversation,
            title,
            saved,
            last_key,
            is_stored=True,
            end=conversation.last,
            unsent=text_or(unsent, ""),
        )
        origins, unsent = turn_rows.origins_of(saved), session.unsent
        title = title or title_in(unsent)
        if lost:
            what = " and ".join(counted(count, noun) for noun, count in lost.items())
            self._problem = f"{what} of “{title}” left out"
        read = SavedSession(key, title, model, system, conversation, settings, origins, unsent)
        return read, session

    def list(self, limit: int | None = None) -> Summaries:
        """Up to `limit` sessions, the one that was changed last first."""
        return [summary for _, summary in self._summaries(limit)]

    def search(self, words: str) -> SearchResults:
        """The sessions with a turn that contains all these words, each with the latest such turn.

        The session that was changed last comes first. The last word may be incomplete.
        """
        with self._database.reading() as connection:
            hits = search_index.search(connection, words)
        summaries = self._summaries() if hits else ()
        return [(summary, hits[row]) for row, summary in summaries if row in hits]

    def messages(self, limit: int) -> Sequence[str]:
        """Up to `limit` messages of the user in all sessions, the one that was sent last last.

        Images are named as files, as they were typed.
        """
        with self._database.reading() as connection:
            return media_rows.messages(connection, limit)[::-1]

    def contents(self) -> Sequence[str]:
        """The contents of all turns in all sessions, the first one first."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT content FROM turn ORDER BY number").fetchall()
        return [content for (content,) in rows if isinstance(content, str) and content]

    def latest_contents(self, letters: int) -> Sequence[str]:
        """The contents of the latest turns of all sessions, the last one last.

        letters: there are no more turns than reach so many letters.
        """
        found = list[str]()
        with self._database.reading() as connection:
            for (content,) in connection.execute("SELECT content FROM turn ORDER BY number DESC"):
                if isinstance(content, str):
                    found.append(content)
                    letters -= len(content)
                if letters <= 0:
                    break
        return found[::-1]

    def rename(self, key: str, title: str) -> None:
        """Set the title of a session. Raises InvalidValueError: empty title, or unknown key."""
        title = single_line(title)
        if not title:
            raise InvalidValueError("the title is empty; type one")
        with self._database.writing() as connection:
            statement = "UPDATE session SET title = ? WHERE key = ?"
            changed = connection.execute(statement, [title, key]).rowcount
        if key in self._sessions:
            self._sessions[key].title = title
        if not changed and key not in self._sessions:
            raise _unknown(key)

    def describe(self, key: str, model: str, system: str | None, settings: SessionSettings) -> None:
        """Set the model, the system prompt and the settings of a session; saved with what is next.

        key: of a session that was created or opened here.
        """
        session = self._sessions[key]
        session.model, session.system, session.settings = model, system, settings
        session.is_described, session.changed = False, time.time()

    def settings(self, key: str) -> SessionSettings:
        """The settings that a session was last continued with."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT settings FROM session WHERE key = ?", [key]).fetchone()
        return SessionSettings.parse(row[0] if row else None)

    def set_unsent(self, key: str, text: str) -> bool:
        """Set what is in the text box of a session; return whether that is a session still.

        One without turns is there only as long as it has such a text. key: of a session that
        was created or opened here.
        """
        session = self._sessions[key]
        session.unsent = without_surrogates(text)
        with self._database.writing() as connection:
            # One with turns that is not there any more was deleted by another process.
            if text and not session.saved:
                session_rows.insert(connection, key, session)
            connection.execute(
                "UPDATE session SET unsent = ?, changed = ? WHERE key = ?",
                [session.unsent, time.time(), key],
            )
            if not text and not session.saved:
                connection.execute("DELETE FROM session WHERE key = ?", [key])
        session.is_stored = bool(text or session.saved)
        return session.is_stored or bool(session.unsaved)

    def delete(self, key: str) -> None:
        """Delete a session. An unknown key is not an error; the disk gets much back soon."""
        with self._database.writing() as connection:
            connection.execute("DELETE FROM session WHERE key = ?", [key])
        self._database.give_back()
        if session := self._sessions.get(key):  # what could not be saved of it is deleted, too
            session.is_described, session.failure = True, None
            session.unsaved.clear()

    def delete_all(self) -> None:
        """Delete all sessions, in a way that leaves nothing of them on the disk.

        Raises LocalspecError if that is not possible.
        """
        self.require_file()
        self._database.delete_all()

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
                "SELECT number, key, title, model, changed, length, unsent FROM session "
                "ORDER BY changed DESC, number DESC LIMIT ?",
                [-1 if limit is None else limit],
            ).fetchall()
        for number, key, title, model, changed, length, unsent in rows:
            if not isinstance(key, str):  # by which it is opened
                self._problem = "a damaged session is not listed"
                continue
            shown = text_or(title, "") or title_in(text_or(unsent, ""))
            model_name, when = text_or(model, "unknown model"), moment_of(changed)
            yield number, SessionSummary(key, shown, model_name, when, count_of(length))


def _unknown(key: str) -> InvalidValueError:
    return InvalidValueError(
        f"there is no session {key!r}; localspec chats lists them, and Ctrl-O in the chat"
    )
