"""Database: private, moved aside if unusable, and safe when a process is killed."""

import random
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import platformdirs
import pytest
from fakes.saved_sessions import found_titles, query, save_session, titles, turn_tree

from localspec.conversation.turns import Conversation, Turn
from localspec.errors import LocalspecError
from localspec.utils.paths import data_folder
from localspec_tui import database, schema
from localspec_tui.archive import DELETED, Archive
from localspec_tui.session_settings import SessionSettings

posix = pytest.mark.skipif(sys.platform == "win32", reason="modes and signals are POSIX's")


def test_the_file_is_in_the_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    with closing(Archive()) as archive:
        save_session(archive, "a")
    assert (tmp_path / "data" / "sessions" / "sessions.sqlite3").is_file()
    monkeypatch.delenv("LOCALSPEC_HOME")
    expected = platformdirs.user_data_path("localspec", appauthor=False) / "sessions"
    assert data_folder("sessions") == expected


@posix
def test_only_the_owner_can_read_the_file(archive: Archive, file: Path) -> None:
    save_session(archive, "a")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()}
    assert file.name in modes and set(modes.values()) == {0o600}
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def random_bytes(file: Path) -> None:
    file.write_bytes(random.Random(0).randbytes(20_000))


def truncated(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])


def page_overwritten(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[4096:8192] = random.Random(0).randbytes(4096)
    file.write_bytes(data)


def of_something_else(file: Path) -> None:
    file.unlink()
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(
            "CREATE TABLE bookmarks (name); INSERT INTO bookmarks SELECT 'mine'"
        )


def of_version(number: int, file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"PRAGMA user_version = {number}")


def moved_aside(change: Callable[[Path], None], problem: str, file: Path, number: int) -> Path:
    """Make a file unusable, open it, and return where it was moved to."""
    with closing(Archive(file)) as archive:
        save_session(archive, "old")
    change(file)
    aside = file.with_name(f"{file.name}.aside-{number}")
    with closing(Archive(file)) as archive:
        said = f"{file} {problem}; it was renamed to {aside.name}, and a new one was made"
        assert archive.problem == said
        assert archive.list() == []
        save_session(archive, "new")
        assert titles(archive) == ["new"]
    with closing(Archive(file)) as again:
        assert again.problem is None and titles(again) == ["new"]
    return aside


@pytest.mark.parametrize(
    "change",
    [
        random_bytes,
        lambda file: truncated(file, 10),
        lambda file: truncated(file, 100),
        lambda file: truncated(file, 4096),
        lambda file: truncated(file, 20_001),
        page_overwritten,
    ],
)
def test_a_damaged_file_is_moved_aside(change: Callable[[Path], None], file: Path) -> None:
    contents = []

    def changed(file: Path) -> None:
        change(file)
        contents.append(file.read_bytes())

    kept_as = [moved_aside(changed, "is damaged", file, number) for number in (1, 2)]
    assert [path.read_bytes() for path in kept_as] == contents


@pytest.mark.parametrize(
    ("change", "problem", "statement", "expected"),
    [
        (of_something_else, "holds no sessions", "SELECT * FROM bookmarks", [("mine",)]),
        *[
            (
                partial(of_version, number),
                "is of another version of localspec",
                "SELECT title FROM session ORDER BY 1",
                [("old",)],
            )
            for number in (0, schema.VERSION + 1)
        ],
    ],
)
def test_a_file_of_another_program_or_version_is_moved_aside(
    change: Callable[[Path], None],
    problem: str,
    statement: str,
    expected: list[tuple[str]],
    file: Path,
) -> None:
    first = moved_aside(change, problem, file, 1)
    second = moved_aside(change, problem, file, 2)
    assert query(first, statement) == expected
    assert {*expected} <= {*query(second, statement)}


def test_a_file_of_another_version_that_is_in_use_is_not_moved(
    archive: Archive, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_BUSY_TIMEOUT", 0)
    save_session(archive, "of the other one")
    of_version(schema.VERSION + 1, file)
    with closing(Archive(file)) as this:
        assert this.problem and "cannot be saved" in this.problem and "locked" in this.problem
        assert this.list() == []
    assert [path.name for path in file.parent.iterdir() if "aside" in path.name] == []
    assert titles(archive) == ["of the other one"]


def test_the_log_of_a_file_is_moved_aside_with_it(file: Path) -> None:
    code = f"""
import os
from pathlib import Path
from localspec_tui.archive import Archive
from localspec.conversation.turns import Turn
archive = Archive(Path({str(file)!r}))
archive.save(archive.create("tiny", None), [], Turn("user", "said"))
archive._database._connection.execute("PRAGMA user_version = 99")
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert file.with_name(f"{file.name}-wal").stat().st_size
    with closing(Archive(file)) as archive:
        assert archive.problem
        save_session(archive, "new")
    assert query(file.with_name(f"{file.name}.aside-1"), "SELECT content FROM turn") == [("said",)]


def test_without_a_writable_file_sessions_are_in_memory(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with closing(Archive(tmp_path / "taken" / "sessions.sqlite3")) as archive:
        assert archive.problem and "\n" not in archive.problem
        assert archive.problem.endswith("this one is lost when the chat ends")
        key = save_session(archive, "one apple", "two")
        assert len(archive.open(key).conversation.turns) == 2
        assert found_titles(archive, "apple") == ["one apple"]
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_sessions_work_where_no_file_can_be_written(tmp_path: Path) -> None:
    file = tmp_path / "read-only" / "sessions.sqlite3"
    file.parent.mkdir(mode=0o500)
    try:
        (file.parent / "try").touch()
    except OSError:
        pass
    else:
        pytest.skip("this user may write anywhere")
    with closing(Archive(file)) as archive:
        assert archive.problem and "cannot be saved" in archive.problem
        assert archive.open(save_session(archive, "said")).title == "said"


def test_an_empty_file_is_set_up(file: Path) -> None:
    file.parent.mkdir()
    file.touch()
    with closing(Archive(file)) as archive:
        assert archive.problem is None
        save_session(archive, "said")
    assert query(file, "PRAGMA user_version") == [(schema.VERSION,)]


def test_opening_a_file_writes_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program may write at the time."""
    monkeypatch.setattr(database, "_BUSY_TIMEOUT", 0)
    with closing(Archive(file)) as archive:
        save_session(archive, "said")
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with closing(Archive(file)) as archive:
            assert archive.problem is None and titles(archive) == ["said"]
            assert not file.with_name(f"{file.name}-wal").stat().st_size


OPENER = """
import resource, signal, sys
from pathlib import Path
from localspec_tui.archive import Archive

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
archive = Archive(Path(sys.argv[1]))
assert archive.problem is None, archive.problem
assert [each.title for each in archive.list()] == ["said"]
"""


@posix
def test_a_file_is_opened_where_nothing_can_be_written(archive: Archive, file: Path) -> None:
    """As on a full disk."""
    save_session(archive, "said")
    subprocess.run([sys.executable, "-c", OPENER, str(file)], check=True)


def test_tables_of_another_make_are_not_used(archive: Archive, file: Path) -> None:
    """As after a change of bits that SQLite does not notice."""
    save_session(archive, "said")
    archive.close()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("ALTER TABLE turn DROP COLUMN edited")
    with closing(Archive(file)) as again:
        assert again.problem and f"{file} is damaged; it was renamed" in again.problem
        save_session(again, "new")
    assert query(file.with_name(f"{file.name}.aside-1"), "SELECT content FROM turn") == [("said",)]


def test_tables_that_could_not_all_be_created_are_created_again(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.parent.mkdir()
    connection = sqlite3.connect(file, isolation_level=None)
    with monkeypatch.context() as patch, closing(connection):
        patch.setattr(schema, "_INDEXES", ["CREATE INDEX broken ON nowhere (number)"])
        with pytest.raises(sqlite3.OperationalError, match="nowhere"):
            schema.set_up(connection)
    with closing(Archive(file)) as archive:
        assert archive.problem is None
        save_session(archive, "said")
        assert titles(archive) == ["said"]


def test_a_refused_save_is_tried_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_BUSY_TIMEOUT", 0)
    with closing(Archive(file)) as archive:
        key = archive.create("tiny", None)
        conversation = Conversation([Turn("user", "one")])
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            archive.save(key, [], conversation.last)
            assert archive.problem and "not saved yet" in archive.problem
            with pytest.raises(LocalspecError, match=r"sessions\.sqlite3: database is locked"):
                archive.delete(key)
            assert archive.list() == []
            other.execute("ROLLBACK")
        archive.save(key, [], conversation.last)
        assert archive.problem is None
        assert turn_tree(archive.open(key).conversation) == turn_tree(conversation)


def test_what_was_refused_is_saved_later_and_until_then_opened_as_it_is_here(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Archive(file).close()
    monkeypatch.setattr("localspec_tui.database._BUSY_TIMEOUT", 0.01)
    with closing(Archive(file)) as archive, closing(sqlite3.connect(file)) as other:
        conversation = Conversation()
        key, new = (
            archive.create("tiny", None, conversation=conversation),
            archive.create("t", None),
        )
        question = conversation.add(Turn("user", "said"))
        archive.save(key, [], question)
        other.execute("BEGIN IMMEDIATE")
        for content in ("one", "two"):
            conversation.back_to(question)
            answer = conversation.add(Turn("assistant", content, stop_reason="eos"))
            archive.save(key, [], answer, {answer.key: [(content, "plain")]})
        opened = archive.open(key)
        assert opened.conversation is conversation and len(opened.origins) == 2
        archive.save(new, [], Turn("user", "another"))
        assert archive.failures.keys() == {key, new}
        other.execute("ROLLBACK")
        # As when a letter is typed and deleted.
        assert archive.set_unsent(new, "x") and archive.set_unsent(new, "")
        archive.save_rest()
        assert archive.problem is None and not archive.failures
        opened = archive.open(key)
        assert turn_tree(opened.conversation) == turn_tree(conversation)
        assert list(opened.origins.values()) == [[("one", "plain")], [("two", "plain")]]
        assert {"said", "another"} == {*titles(archive)}


@posix
@pytest.mark.parametrize("change", ["moved", "moved with its folder", "deleted"])
@pytest.mark.parametrize("asks", [True, False])
def test_a_file_that_was_moved_or_deleted_is_made_anew(
    archive: Archive, file: Path, change: str, asks: bool
) -> None:
    save_session(archive, "earlier")
    conversation = Conversation()
    key = archive.create("tiny", None, conversation=conversation)
    question = conversation.add(Turn("user", "said"))
    for content in ("one", "two"):
        conversation.back_to(question)
        answer = conversation.add(Turn("assistant", content, stop_reason="eos"))
        archive.save(key, [], answer, {answer.key: [(content, "plain")]})
    archive.set_unsent(key, "typed")
    moved = file.with_name("moved")
    match change:
        case "moved":
            file.rename(moved)
        case "deleted":
            file.unlink()
        case _:
            file.parent.rename(file.parent.with_name("elsewhere"))
            moved = file.parent.with_name("elsewhere") / file.name
    if asks:
        archive.save(key, [], conversation.add(Turn("user", "more")))
    else:
        archive.save_rest(key)
    assert archive.problem == f"{file} was moved or deleted; a new one was made"
    if change != "deleted":
        with closing(Archive(moved)) as old:
            assert {"earlier", "said"} == {*titles(old)}, "what was in the log is kept, too"
    [listed] = archive.list()
    assert time.time() - listed.changed.timestamp() < 60
    with closing(Archive(file)) as again:
        opened = again.open(key)
    assert turn_tree(opened.conversation) == turn_tree(conversation)
    assert list(opened.origins.values()) == [[("one", "plain")], [("two", "plain")]]
    assert opened.unsent == "typed"


@posix
def test_a_text_in_the_box_alone_is_saved_anew(archive: Archive, file: Path) -> None:
    key = archive.create("tiny", None)
    archive.set_unsent(key, "typed")
    file.unlink()
    archive.save_rest(key)
    with closing(Archive(file)) as again:
        assert again.open(key).unsent == "typed"


@posix
def test_another_window_makes_a_moved_file_anew_too(archive: Archive, file: Path) -> None:
    with closing(Archive(file)) as other:
        keys = {each: save_session(each, "said") for each in (archive, other)}
        file.rename(file.with_name("moved"))
        for each, key in keys.items():
            each.save_rest(key)
            assert not each.failures
        assert [*titles(archive)] == [*titles(other)] == ["said", "said"]


def test_a_deleted_session_is_saved_whole_once_that_is_possible(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = Conversation()
    key = archive.create("tiny", None, conversation=conversation)
    question = conversation.add(Turn("user", "said"))
    for content in ("one", "two"):
        conversation.back_to(question)
        archive.save(key, [], conversation.add(Turn("assistant", content, stop_reason="eos")))
    archive.delete(key)
    with monkeypatch.context() as full:
        full.setattr("localspec_tui.session_rows.update", lambda *_: no_room())
        archive.save(key, [], conversation.add(Turn("user", "more")))
        assert archive.failures == {key: f"the sessions in {archive.file}: no room"}
    archive.save_rest()
    assert archive.problem == DELETED
    assert turn_tree(archive.open(key).conversation) == turn_tree(conversation)


def test_a_conversation_that_was_not_saved_and_is_deleted_stays_deleted(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = save_session(archive, "said")
    with monkeypatch.context() as full:
        full.setattr("localspec_tui.session_rows.update", lambda *_: no_room())
        archive.describe(key, "tiny", None, SessionSettings())
        archive.save(key, [], Turn("user", "more"))
    archive.delete(key)
    archive.save_rest()
    assert not archive.list() and not archive.failures


def no_room() -> None:
    raise sqlite3.OperationalError("no room")


@posix
def test_a_file_that_cannot_be_made_anew_is_said(archive: Archive, file: Path) -> None:
    key = save_session(archive, "said")
    file.parent.rename(file.parent.with_name("elsewhere"))
    file.parent.write_bytes(b"")
    archive.save(key, [], Turn("user", "more"))
    assert "was moved or deleted, and cannot be made anew: " in (archive.problem or "")
    file.parent.unlink()
    archive.save_rest()
    assert not archive.failures and archive.list()


def test_a_file_that_breaks_in_use_is_an_error_and_no_crash(archive: Archive, file: Path) -> None:
    save_session(archive, "said")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("DROP TABLE session")
    with pytest.raises(LocalspecError, match="no such table"):
        archive.list()
    save_session(archive, "more")
    assert archive.problem and "no such table" in archive.problem


WRITER = """
import sys
from pathlib import Path
from localspec_tui.archive import Archive
from localspec.conversation.turns import Conversation, Turn

archive, name = Archive(Path(sys.argv[1])), sys.argv[2]
assert archive.problem is None, archive.problem
key, conversation = archive.create("tiny", None), Conversation()
for number in range(40):
    turn = conversation.add(Turn("user", f"{name} {number}"))
    archive.save(key, [turn], turn)
    assert archive.problem is None, archive.problem
archive.close()
"""


def test_several_processes_can_start_and_write_at_once(file: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(file)]
    children = [subprocess.Popen([*command, name]) for name in ("one", "two", "three")]
    assert [child.wait() for child in children] == [0, 0, 0]
    with closing(Archive(file)) as archive:
        for summary in archive.list():
            name = summary.title.split()[0]
            turns = archive.open(summary.key).conversation.turns
            assert [turn.content for turn in turns] == [f"{name} {number}" for number in range(40)]
        assert sorted(titles(archive)) == ["one 0", "three 0", "two 0"]


STREAMER = """
import sys, time
from pathlib import Path
from localspec_tui.archive import Archive
from localspec.conversation.turns import Conversation, Turn

archive = Archive(Path(sys.argv[1]))
conversation = Conversation([Turn("user", "Count.")])
key = archive.create("tiny", None)
archive.save(key, [], conversation.last)
turn = conversation.add(Turn("assistant", ""))
number = 0
while True:
    turn.content += f"{number} "
    archive.save(key, [turn], turn, {turn.key: [(turn.content, "plain")]})
    print(number, flush=True)
    number += 1
    time.sleep(0.05)
"""


@posix
def test_a_killed_process_loses_nothing_that_was_saved(file: Path) -> None:
    command = [sys.executable, "-c", STREAMER, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        for line in child.stdout:
            if line == "9\n":
                break
        child.send_signal(signal.SIGKILL)
        saved = [9, *(int(line) for line in child.stdout.read().splitlines())][-1]
    with closing(Archive(file)) as archive:
        assert archive.problem is None
        opened = archive.open(archive.latest() or "")
        question, answer = opened.conversation.turns
        numbers = [int(number) for number in answer.content.split()]
        assert (question.content, answer.stop_reason) == ("Count.", "interrupted")
        # It may have been killed between saving and printing.
        assert numbers in ([*range(saved + 1)], [*range(saved + 2)])
        assert opened.origins == {answer.key: [(answer.content, "plain")]}
        assert found_titles(archive, str(saved)) == ["Count."]
    assert query(file, "PRAGMA integrity_check") == [("ok",)]
