"""Media rows: the images and sounds of turns as rows of the database.

The contents of a file are kept once, however many turns have it, and go with the last of them.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence

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
    rows = connection.execute(
        "SELECT media.turn, content, start, stop, name, file, data "
        "FROM media JOIN turn ON turn.number = media.turn LEFT JOIN media_file "
        "ON media_file.key = file WHERE session = ? ORDER BY media.turn, start",
        [session],
    )
    for number, content, start, stop, name, key, data in rows:
        spans = found[number]
        try:
            span = MediaSpan(start, stop, required_text(name), data)
            before = spans[-1].end if spans else 0
            if span.key != key or not before <= start < stop <= len(content):
                raise ValueError("damaged")
        except UNREADABLE:
            lost += 1
            continue
        spans.append(span)
    return found, lost


def messages(connection: sqlite3.Connection, limit: int) -> Sequence[str]:
    """Up to `limit` messages of the user, the last one first; images are named as files."""
    rows = connection.execute(
        "SELECT number, content FROM turn WHERE role = 'user' ORDER BY number DESC LIMIT ?", [limit]
    ).fetchall()
    places = defaultdict[int, list[tuple[int, int, str]]](list)
    for number, *place in connection.execute(
        "SELECT turn, start, stop, name FROM media ORDER BY start"
    ):
        if [type(each) for each in place] == [int, int, str]:
            places[number].append((place[0], place[1], place[2]))
    return [
        with_names(content, places[number]) for number, content in rows if isinstance(content, str)
    ]
