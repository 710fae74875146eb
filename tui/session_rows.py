"""Session rows: the sessions as rows of the database."""

import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from localspec.conversation.turns import Conversation, Turn
from localspec_tui.origins import OriginSegment
from localspec_tui.row_values import text_or
from localspec_tui.sanitized import single_line
from localspec_tui.session_settings import SessionSettings
from localspec_tui.turn_rows import SavedTurn, without_surrogates

UNTITLED = "untitled"
_TITLE_LETTERS = 60


@dataclass(slots=True)
class OpenSession:
    """A session that was created or opened here. saved, last: what the database has of it.

    conversation: as it goes on here. title: None until the first save or `rename`. saved: by the
    key of the turn. last: key of the turn where the active branch ends. is_stored: whether it has a
    row. is_described: whether model, system and settings are in it. unsaved, origins: turns that
    are to be saved and origins of answers, by the key of the turn. end: where the active branch
    ends here. changed: when something was to be saved last. unsent: the text in the box. failure:
    why the last save failed; None if it did not. others: keys of such turns as `last` that other
    windows have saved.
    """

    model: str
    system: str | None
    settings: SessionSettings
    conversation: Conversation
    title: str | None = None
    saved: dict[str, SavedTurn] = field(default_factory=dict)
    last: str | None = None
    is_stored: bool = False
    is_described: bool = True
    unsaved: dict[str, Turn] = field(default_factory=dict)
    origins: dict[str, Sequence[OriginSegment]] = field(default_factory=dict)
    end: Turn | None = None
    changed: float = field(default_factory=time.time)
    unsent: str = ""
    failure: str | None = None
    others: set[str] = field(default_factory=set)

    def columns(self) -> dict[str, Any]:
        """What its row says, beside what follows from its turns."""
        return {
            "title": self.title,
            "model": without_surrogates(self.model),
            "system": self.system and without_surrogates(self.system),
            "settings": self.settings.as_json(),
            "unsent": self.unsent,
        }

    @property
    def is_saved(self) -> bool:
        """Whether all that was to be saved of it is in the database."""
        is_empty = self.end is None and not self.unsent
        return self.failure is None and (self.is_described or is_empty)

    def is_overtaken(self, last: str | None) -> bool:
        """Whether another window has saved where the branch ends; asked once for each such turn."""
        if last is None or last == self.last or last in self.others:
            return False
        self.others.add(last)
        return True


def insert(connection: sqlite3.Connection, key: str, session: OpenSession) -> tuple[int, bool]:
    """Insert the row of a session if there is none. Returns its number, and whether it is new."""
    inserted = connection.execute(
        "INSERT OR IGNORE INTO session "
        "(key, title, model, system, settings, unsent, changed, length) "
        "VALUES (:key, :title, :model, :system, :settings, :unsent, 0, 0)",
        {**session.columns(), "key": key},
    ).rowcount
    [(number,)] = connection.execute("SELECT number FROM session WHERE key = ?", [key])
    return number, inserted == 1


def last_key(connection: sqlite3.Connection, number: int) -> str | None:
    """The key of the turn where the saved branch of a session ends, if there is one."""
    statement = (
        "SELECT turn.key FROM session JOIN turn ON turn.number = last WHERE session.number = ?"
    )
    row = connection.execute(statement, [number]).fetchone()
    return (row and text_or(row[0], "")) or None


def update(connection: sqlite3.Connection, number: int, session: OpenSession) -> None:
    """Set what the row of a session says, and its title if it has none."""
    last = session.end
    connection.execute(
        "UPDATE session SET title = coalesce(title, :title), model = :model, system = :system, "
        "settings = :settings, changed = :changed, length = :length, "
        "last = (SELECT number FROM turn WHERE session = :number AND key = :last) "
        "WHERE number = :number",
        {
            **session.columns(),
            "changed": session.changed,
            "length": len(last.path) if last else 0,
            "last": last and last.key,
            "number": number,
        },
    )


def title_of(last: Turn | None) -> str | None:
    """The title of a branch, which its first question gives it. last: where it ends."""
    branch = last.path if last else []
    return next((title_in(turn.content) for turn in branch if turn.role == "user"), None)


def title_in(text: str) -> str:
    """The first line with words in it, shortened between words if possible."""
    lines = (single_line(line) for line in text.splitlines())
    line = next((line for line in lines if line), UNTITLED)
    if len(line) <= _TITLE_LETTERS:
        return line
    start = line[:_TITLE_LETTERS]
    whole_words = start.rpartition(" ")[0]
    return (whole_words if len(whole_words) > _TITLE_LETTERS // 2 else start[:-1]) + "…"
