"""What is said at the end of a chat that could not be saved, or not all of it."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic

import pytest
from fakes.pilot import running_chat
from fakes.plain_chat import Chat, contents
from fakes.scripted import Script
from textual.widgets import Input

from localspec_tui import notes
from localspec_tui.archive import Archive
from localspec_tui.autosave import Autosave
from localspec_tui.engine_thread import EngineThread
from localspec_tui.screens.input_dialog import InputDialog
from localspec_tui.screens.sessions import SessionsScreen

pytestmark = pytest.mark.usefixtures("home")
Lock = Callable[[int], sqlite3.Connection]
WHY = "database is locked\n"
TO_GO_ON = "continue with: localspec chat --plain --resume "


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch, file: Path) -> Iterator[Lock]:
    """Lets another program write into the file from the message with this number on."""
    Archive(file).close()
    monkeypatch.setattr("localspec_tui.database._BUSY_TIMEOUT", 0.01)
    with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as other:

        def from_message(number: int) -> sqlite3.Connection:
            send, count = EngineThread.send, 0

            def sent(thread: EngineThread, text: str) -> None:
                nonlocal count
                count += 1
                if count == number:
                    other.execute("BEGIN EXCLUSIVE")
                send(thread, text)

            monkeypatch.setattr(EngineThread, "send", sent)
            return other

        yield from_message


def test_a_chat_of_which_nothing_is_saved(chat: Chat, locked: Lock) -> None:
    locked(1)
    done = chat(Script(["One."]), "first\n")
    assert done.turns == [] and TO_GO_ON not in done.notes
    assert "\nthis conversation was not saved: the sessions in " in done.notes
    assert done.notes.endswith(WHY)


def test_a_chat_of_which_the_last_part_is_not_saved(chat: Chat, locked: Lock) -> None:
    locked(2)
    done = chat(Script(["One.", "Two."]), "first\nsecond\n")
    assert contents(done) == ["first", "One."]
    what, how = done.notes.split("\n")[-3:-1]
    assert what.startswith("the last part of this conversation was not saved: the sessions in ")
    assert how.startswith(TO_GO_ON)


def test_what_could_not_be_saved_is_saved_at_the_end(
    chat: Chat, locked: Lock, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, close = locked(1), EngineThread.close

    def closed(thread: EngineThread) -> None:
        close(thread)
        other.execute("ROLLBACK")

    monkeypatch.setattr(EngineThread, "close", closed)
    done = chat(Script(["One."]), "first\n")
    assert contents(done) == ["first", "One."]
    assert "was not saved" not in done.notes and f"\n{TO_GO_ON}" in done.notes
    with closing(Archive(file)) as archive:
        assert archive.open(archive.latest() or "").origins


@pytest.mark.parametrize("number", [1, 2])
def test_save_writes_what_is_not_in_the_file_of_conversations(
    chat: Chat, locked: Lock, tmp_path: Path, number: int
) -> None:
    locked(number)
    saved = tmp_path / "saved.md"
    done = chat(Script(["One.", "Two."]), f"first\nsecond\n/save {saved}\n", system="Be brief.")
    assert f"(written: {saved})" in done.notes
    assert saved.read_text("utf-8").startswith(
        "# first\n\nModel: scripted\n\n## System\n\nBe brief."
    )
    assert saved.read_text("utf-8").endswith("One.\n\n## User\n\nsecond\n\n## Assistant\n\nTwo.\n")


def test_the_list_of_conversations_saves_the_open_one_whole_too(
    locked: Lock, file: Path, tmp_path: Path
) -> None:
    async def body() -> None:
        locked(2)
        script = Script(["One.", "Two " * 200])
        async with running_chat(script, file.parent) as opened:
            await opened.ask("first")
            script.rate = 20
            await opened.send("second")
            await opened.until(lambda: opened.contents[-1].startswith("Two"))
            await opened.press("ctrl+o")
            await opened.until(lambda: opened.is_on_top(SessionsScreen))
            await opened.press("ctrl+s")
            await opened.until(lambda: opened.is_on_top(InputDialog))
            saved = tmp_path / "saved.md"
            opened.app.screen.query_one(Input).value = str(saved)
            await opened.press("enter")
            await opened.until(saved.exists)
        written = saved.read_text("utf-8")
        assert "One.\n\n## User\n\nsecond\n\n## Assistant\n\nTwo" in written
        assert written.endswith("*(not finished yet)*\n")

    asyncio.run(body())


@pytest.mark.parametrize("is_released", [True, False])
def test_a_conversation_that_was_left_is_saved_later_or_said_to_be_lost(
    locked: Lock, file: Path, is_released: bool
) -> None:
    async def body() -> Autosave:
        other = locked(1)
        async with running_chat(Script(["One.", "Two."]), file.parent) as opened:
            await opened.ask("first")
            await opened.press("ctrl+n")
            await opened.until(lambda: not opened.screen.conversation.turns)
            await opened.ask("second")
            if is_released:
                other.execute("ROLLBACK")
                await opened.until(lambda: not opened.app.archive.failures)
        return opened.app.autosave

    autosave = asyncio.run(body())
    with closing(Archive(file)) as archive:
        saved = [archive.open(each.key) for each in archive.list()]
    if is_released:
        assert [[turn.content for turn in each.conversation.turns] for each in saved] == [
            ["second", "Two."],
            ["first", "One."],
        ]
        assert all(each.origins for each in saved) and not autosave.lost
    else:
        assert saved == []
        lines = [*notes.last_words([], autosave.kept, autosave.failure, autosave.lost)]
        assert lines[0].startswith("not all of “first” was saved: the sessions in ")
        assert lines[1].startswith("this conversation was not saved: the sessions in ")


def test_a_file_that_another_program_holds_does_not_stop_the_screen(
    locked: Lock, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        other = locked(2)
        async with running_chat(Script(["One."]), file.parent) as opened:
            await opened.ask("first")
            # As long as 20 saves may take, and more.
            monkeypatch.setattr("localspec_tui.database._BUSY_TIMEOUT", 5.0)
            await opened.ask("second")
            opened.screen.composer.set_text("typed")
            began = monotonic()
            for _ in range(20):
                opened.screen._save()
            assert monotonic() - began < 6
            assert [note.startswith("not saved yet: ") for note in opened.notes] == [True]
            other.execute("ROLLBACK")
            opened.screen._save()
            other.execute("BEGIN EXCLUSIVE")
            opened.screen.composer.set_text("typed on")
            opened.screen._save()
            assert [note.startswith("not saved yet: ") for note in opened.notes] == [True, True]
            other.execute("ROLLBACK")
        with closing(Archive(file)) as archive:
            session = archive.open(archive.latest() or "")
        assert len(session.conversation.turns) == 4 and session.unsent == "typed on"

    asyncio.run(body())


def test_the_chat_with_a_screen_says_so_too(locked: Lock, file: Path) -> None:
    async def body() -> None:
        locked(1)
        async with running_chat(Script(["One."]), file.parent) as opened:
            await opened.ask("first")
        autosave = opened.app.autosave
        [line] = notes.last_words([], autosave.kept, autosave.failure)
        assert line.startswith("this conversation was not saved: the sessions in ")

    asyncio.run(body())


def test_a_chat_whose_file_cannot_be_opened_says_so_at_its_end(chat: Chat, file: Path) -> None:
    file.parent.write_bytes(b"")
    done = chat(Script(["One."]), "first\n")
    assert "\nthis conversation was not saved: conversations in " in done.notes
    assert " cannot be opened: " in done.notes.splitlines()[-1]
    assert TO_GO_ON not in done.notes
    done = chat(Script(["One."]), "")
    assert "was not saved" not in done.notes
