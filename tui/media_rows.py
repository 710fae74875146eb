"""Media rows: the images and sounds of turns as rows of the database.

The contents of a file are kept once, however many turns have it, and go with the last of them.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import sha256

from localspec.conversation.media_spans import MediaSpan
from localspec.conversation.turns import Turn
from localspec_tui.attachments import with_names
from localspec_tui.row_values import UNREADABLE, required_text


def insert(connection: sqlite3.Connection, session: int, turn: Turn) -> None:
    """Insert the rows of a turn that has a row itself. session: number of the session's row."""
    if not turn.media:
        return
    statement = "SELECT number FROM turn WHERE session = ? AND key = ?"
    [(number,)] = connection.execute(statement, [session, turn.key])
    for span in turn.media:
        connection.execute(
            "INSERT OR IGNORE INTO media_file (key, data) VALUES (?, ?)", [span.key, span.data]
        )
        connection.execute(
            "INSERT OR IGNORE INTO media (turn, start, stop, name, file) VALUES (?, ?, ?, ?, ?)",
            [number, span.start, span.end, span.name.encode("utf-8", "replace").decode(), span.key],
        )


def load(
    connection: sqlite3.Connection, session: int
) -> tuple[Mapping[int, Sequence[MediaSpan]], int]:
    """The images and sounds of a session by the number of their turn's row, and how many are lost.

    session: number of the session's row.
    """
    found, lost = defaultdict[int, list[MediaSpan]](list), 0
    files = _files(connection, session)
    rows = connection.execute(
        "SELECT media.turn, content, start, stop, name, file FROM media "
        "JOIN turn ON turn.number = media.turn WHERE session = ? ORDER BY media.turn, start",
        [session],
    )
    for number, content, start, stop, name, key in rows:
        spans = found[number]
        try:
            span = MediaSpan(start, stop, required_text(name), files[key], key)
            before = spans[-1].end if spans else 0
            if not (_is_place(start, stop) and before <= start and stop <= len(content)):
                raise ValueError("damaged")
            # What is shown in its place; see `media_spans.chip`.
            shown = content[start:stop].strip()
            if not (shown.startswith("[") and shown.endswith("]")):
                raise ValueError("damaged")
        except UNREADABLE:
            lost += 1
            continue
        spans.append(span)
    return found, lost


def _files(connection: sqlite3.Connection, session: int) -> Mapping[str, bytes]:
    """The contents of the files of a session that are what they were, by their keys."""
    rows = connection.execute(
        "SELECT key, data FROM media_file WHERE key IN "
        "(SELECT file FROM media JOIN turn ON turn.number = media.turn WHERE session = ?)",
        [session],
    )
    return {
        key: data
        for key, data in rows
        if isinstance(data, bytes) and sha256(data).hexdigest() == key
    }


def _is_place(start: object, stop: object) -> bool:
    return isinstance(start, int) and isinstance(stop, int) and 0 <= start < stop


def messages(connection: sqlite3.Connection, limit: int) -> Sequence[str]:
    """Up to `limit` messages of the user, the last one first; images are named as files."""
    rows = connection.execute(
        "SELECT number, content FROM turn WHERE role = 'user' ORDER BY number DESC LIMIT ?", [limit]
    ).fetchall()
    places = defaultdict[int, list[tuple[int, int, str]]](list)
    for number, start, stop, name in connection.execute(
        "SELECT turn, start, stop, name FROM media ORDER BY start"
    ):
        if _is_place(start, stop) and isinstance(name, str):
            places[number].append((start, stop, name))
    return [
        with_names(content, places[number]) for number, content in rows if isinstance(content, str)
    ]
