"""Turn rows: the turns of a conversation as rows of the database."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, get_args

from localspec.conversation.turns import Conversation, Role, TokenizedText, Turn
from localspec_tui import media_rows
from localspec_tui.origins import OriginSegment
from localspec_tui.row_values import (
    UNREADABLE,
    count_of,
    required_text,
    state_of,
    text_or,
    tokens_of,
)

INTERRUPTED = "interrupted"


class SavedTurn(NamedTuple):
    """The columns of a turn that may change.

    spelt, tokens: the answer's text and its tokens. origins, sampler_state: as JSON; the latter is
    in a table of its own.
    """

    stop_reason: str | None
    content: str
    thought: str
    raw: str
    spelt: str
    tokens: tuple[int, ...]
    vocabulary: str
    origins: str | None
    seed: int | None
    thinking: bool | None
    switch: bool | None
    template: str
    thinking_budget: int | None
    edited: int
    sampler_state: str | None


_CHANGING = SavedTurn._fields[:-1]
_NAMES = ("session", "key", "role", "before", *_CHANGING)
_BEFORE = "(SELECT number FROM turn WHERE session = :session AND key = :before)"
_VALUES = ", ".join(_BEFORE if name == "before" else f":{name}" for name in _NAMES)
_CHANGES = ", ".join(f"{name} = excluded.{name}" for name in _CHANGING)
_UPSERT = (
    f"INSERT INTO turn ({', '.join(_NAMES)}) VALUES ({_VALUES}) "
    f"ON CONFLICT (session, key) DO UPDATE SET {_CHANGES}"
)
_SELECT = (
    "SELECT turn.*, state AS sampler_state FROM turn "
    "LEFT JOIN sampler_state ON turn = number WHERE session = ? ORDER BY number"
)


def unsaved(
    turns: Iterable[Turn],
    saved: Mapping[str, SavedTurn],
    origins: Mapping[str, Sequence[OriginSegment]],
) -> list[tuple[Turn, SavedTurn]]:
    """The turns that differ from their saved rows, with new columns; their ancestors are included.

    saved, origins: by the key of the turn. In the result, each turn comes after its ancestors.
    """
    found = []
    for turn in _with_ancestors(turns):
        columns = _columns(turn, saved.get(turn.key), origins.get(turn.key))
        if columns != saved.get(turn.key):
            found.append((turn, columns))
    return found


def upsert(connection: sqlite3.Connection, session: int, turn: Turn, columns: SavedTurn) -> None:
    """Insert or replace the row of a turn. The turn before it must have a row.

    session: number of the session's row.
    """
    values = columns._asdict() | {
        "session": session,
        "key": turn.key,
        "role": turn.role,
        "before": turn.before.key if turn.before else None,
        "tokens": json.dumps(columns.tokens),
        "seed": None if columns.seed is None else str(columns.seed),
    }
    connection.execute(
        _UPSERT,
        {
            name: without_surrogates(value) if isinstance(value, str) else value
            for name, value in values.items()
        },
    )
    row = "SELECT number FROM turn WHERE session = ? AND key = ?"
    [(number,)] = connection.execute(row, [session, turn.key])
    connection.execute("DELETE FROM sampler_state WHERE turn = ?", [number])
    if columns.sampler_state:
        statement = "INSERT INTO sampler_state (turn, state) VALUES (?, ?)"
        connection.execute(statement, [number, columns.sampler_state])
    media_rows.insert(connection, session, turn)


def load_conversation(
    connection: sqlite3.Connection, session: int, last: int | None
) -> tuple[Conversation, dict[str, SavedTurn], Counter[str]]:
    """All turns of a session, their saved columns by the key of the turn, and what is left out.

    session: number of the session's row. last: number of the last row of the active branch. What
    follows a damaged turn, which is left out, follows the turn before it. Of a damaged image its
    chip is left.
    """
    conversation, saved = Conversation(), dict[str, SavedTurn]()
    media, lost_media = media_rows.load(connection, session)
    lost = Counter({"damaged image": lost_media})
    turns: dict[int | None, Turn | None] = {}
    rows = connection.cursor()
    rows.row_factory = sqlite3.Row
    # In the order in which they were said, which is the order of variants too.
    for row in rows.execute(_SELECT, [session]):
        before = turns.get(row["before"])
        try:
            turn = _turn(row)
        except UNREADABLE:
            turns[row["number"]] = before
            lost["damaged message"] += 1
            continue
        turn.media = tuple(media.get(row["number"], ()))
        conversation.back_to(before)
        turns[row["number"]] = conversation.add(turn)
        saved[turn.key] = _columns(turn, None, None)._replace(origins=row["origins"])
    if last is None or last in turns:
        conversation.back_to(turns.get(last))
    return conversation, saved, +lost


def origins_of(saved: Mapping[str, SavedTurn]) -> dict[str, list[OriginSegment]]:
    """The origins of saved turns that have some, by the key of the turn."""
    found = {}
    for key, columns in saved.items():
        with suppress(*UNREADABLE):
            if columns.origins:
                found[key] = [_segment(*each) for each in json.loads(columns.origins)]
    return found


def _segment(text: object, origin: object) -> OriginSegment:
    return OriginSegment(required_text(text), required_text(origin))


def without_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, with question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _with_ancestors(turns: Iterable[Turn]) -> Iterator[Turn]:
    seen: set[str] = set()
    for turn in turns:
        new = []
        ancestor: Turn | None = turn
        while ancestor is not None and ancestor.key not in seen:
            seen.add(ancestor.key)
            new.append(ancestor)
            ancestor = ancestor.before
        yield from reversed(new)


def _columns(
    turn: Turn, saved: SavedTurn | None, origins: Sequence[OriginSegment] | None
) -> SavedTurn:
    # The engine thread may be writing the turn. Read the stop reason first: once it is set, nothing
    # else changes.
    reason, written = turn.stop_reason, turn.written
    return SavedTurn(
        reason,
        turn.content,
        turn.thought,
        turn.raw,
        written.text,
        written.tokens,
        turn.vocabulary,
        json.dumps(origins) if origins is not None else saved and saved.origins,
        turn.seed,
        turn.thinking,
        turn.switch,
        turn.template,
        turn.thinking_budget,
        turn.edited,
        json.dumps(turn.sampler_state) if turn.sampler_state else None,
    )


def _choice(value: object) -> bool | None:
    return bool(value) if value in (0, 1) else None


def _turn(row: sqlite3.Row) -> Turn:
    """A row as a turn. Raises one of UNREADABLE if its role, content or key is damaged."""
    if row["role"] not in get_args(Role):
        raise ValueError("not a role")
    content, key = required_text(row["content"]), required_text(row["key"])
    turn = Turn(row["role"], content, text_or(row["thought"], ""), key=key)
    turn.vocabulary = text_or(row["vocabulary"], "")
    if turn.role == "assistant" and row["stop_reason"] is None:
        # The tokens of an answer are saved at its end; its content may be longer than they are.
        turn.stop_reason = INTERRUPTED
        return turn
    reason = row["stop_reason"]
    turn.stop_reason = reason if reason is None else text_or(reason, INTERRUPTED)
    turn.raw = text_or(row["raw"], "")
    budget, turn.template = row["thinking_budget"], text_or(row["template"], "")
    turn.thinking_budget = budget if isinstance(budget, int) else None
    turn.thinking, turn.switch = _choice(row["thinking"]), _choice(row["switch"])
    with suppress(*UNREADABLE):
        turn.seed = int(required_text(row["seed"])) % 2**64
    with suppress(*UNREADABLE):  # without its tokens, the text is tokenized again
        turn.written = TokenizedText(required_text(row["spelt"]), tokens_of(row["tokens"]))
        turn.edited = count_of(row["edited"])
        turn.sampler_state = state_of(row["sampler_state"])
    return turn
