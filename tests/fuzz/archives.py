"""Damaged archives of conversations: what cannot be read is left out or set aside, and said."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from fakes.damaged_files import remove
from fakes.projectors import picture

from localspec.conversation.media_spans import media_part
from localspec.conversation.message import as_turn
from localspec.conversation.turns import Conversation, TokenizedText, Turn
from localspec.errors import LocalspecError
from localspec_tui.archive import Archive
from localspec_tui.attachments import typed_message
from localspec_tui.origins import OriginSegment

COLUMNS = {
    "session": [
        "key", "title", "model", "system", "changed", "last", "length", "settings", "unsent",
    ],
    "turn": [
        "session", "key", "before", "role", "content", "thought", "raw", "spelt", "tokens",
        "vocabulary", "stop_reason", "origins",
    ],
    "media": ["turn", "start", "stop", "name", "file"],
    "media_file": ["key", "data"],
}  # fmt: skip
ODD: list[Any] = [
    1e300, -1e300, float("inf"), 10**18, -1, 0, 0.5, b"\xff\xfe", b"", "", "x", "[[[[", "[" * 5000,
    "[1e400]", "[99999999999]", '[["a"]]', '[[1, 2]]', "9" * 5000, "{}", "null", '{"sampling": 5}',
    '{"sampling": {"temperature": 1e999}}', "\x1b]0;x\x07", "a" * 100_000, "assistant",
]  # fmt: skip
QUESTION = "a question about rivers"


def written(file: Path) -> list[str]:
    """An archive of three sessions, with variants and origins; their keys."""
    with closing(Archive(file)) as archive:
        keys = []
        for number in range(3):
            key = archive.create("tiny", "Be brief.")
            conversation = Conversation()
            for turn in range(3):
                text = {"type": "text", "text": f"{QUESTION} {number} {turn}"}
                parts = [media_part(f"{turn}.png", picture(8, 8, seed=number)), text]
                question = conversation.add(as_turn(parts if number else text["text"], "user"))
                answer = Turn("assistant", "an answer", raw="an answer", vocabulary="v")
                answer.written = TokenizedText("an answer", (1, 2, 3))
                answer.stop_reason = "end"
                conversation.add(answer)
                origins = {answer.key: [OriginSegment("an answer", "suffix")]}
                archive.save(key, [question, answer], answer, origins)
            keys.append(key)
        return keys


def typed(turn: Turn) -> str:
    """What an edit of a turn begins with."""
    return typed_message(turn) if turn.role == "user" else turn.content


def used(file: Path, keys: list[str]) -> list[str]:
    """All that the chat does with an archive; the errors it would show in a line."""
    said = []

    def tried(action: Any) -> None:
        try:
            action()
        except LocalspecError as error:
            assert "\n" not in str(error)
            said.append(str(error))

    with closing(Archive(file)) as archive:
        for key in [*keys, *(summary.key for summary in archive.list())]:
            tried(lambda key=key: [*map(typed, archive.open(key).conversation.everything())])
            tried(lambda key=key: archive.settings(key))
            tried(lambda key=key: archive.rename(key, "renamed"))
        for words in ("rivers", "?", "a question"):
            tried(lambda words=words: archive.search(words))
        for action in (archive.list, archive.latest, lambda: archive.messages(50)):
            tried(action)
        new = archive.create("tiny", None)
        turn = Turn("user", "after the damage")
        archive.save(new, [turn], turn)
        tried(lambda: archive.delete(keys[0]))
        return [*said, *([archive.problem] if archive.problem else [])]


def with_odd_value(file: Path, random: Random) -> str:
    """Put an odd value in a row, past all constraints."""
    table = random.choice([*COLUMNS])
    column, value = random.choice(COLUMNS[table]), random.choice(ODD)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        numbers = [number for (number,) in connection.execute(f"SELECT rowid FROM {table}")]
        try:
            with connection:
                connection.execute(
                    f"UPDATE {table} SET {column} = ? WHERE rowid = ?",
                    [value, random.choice(numbers)],
                )
        except sqlite3.Error:
            return "refused by SQLite"
    return f"{table}.{column} = {value!r:.20}"


def with_flipped_bits(file: Path, random: Random) -> str:
    """Flip bits: mostly of the first pages, which hold the schema."""
    data = bytearray(file.read_bytes())
    end = random.choice([100, 4096, 8192, len(data)])
    for _ in range(random.randint(1, 6)):
        data[random.randrange(end)] ^= 1 << random.randrange(8)
    file.write_bytes(data)
    return "flipped bits"


@contextmanager
def archives() -> Iterator[Callable[[int], str]]:
    """The cases: two of three have an odd value in a row, the others flipped bits."""
    with TemporaryDirectory(prefix="localspec-fuzz-") as name:
        folder = Path(name)
        original, file = folder / "original.sqlite3", folder / "sessions.sqlite3"
        keys = written(original)

        def case(number: int) -> str:
            for old in folder.glob("sessions.sqlite3*"):
                remove(old)
            shutil.copy(original, file)
            what = (with_odd_value if number % 3 else with_flipped_bits)(file, Random(number))
            return f"{what.partition(' =')[0]}, {'said' if used(file, keys) else 'read'}"

        yield case
