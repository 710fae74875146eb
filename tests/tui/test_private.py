"""Chats that are not kept, and conversations that are forgotten."""

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from fakes.command_line import localspec
from fakes.pilot import ChatPilot
from fakes.scripted import Script
from fakes.terminal import on_terminal

from localspec.cli.chat import chat
from localspec.cli.forget import forget
from localspec.conversation.turns import Conversation, Turn
from localspec.drafters.suffix_store import default_folder
from localspec.errors import InvalidValueError, LocalspecError
from localspec.utils.paths import data_folder
from localspec_tui import database, launch
from localspec_tui.app import ChatApp
from localspec_tui.archive import Archive
from localspec_tui.engine_thread import EngineThread
from localspec_tui.launch_options import LaunchOptions
from localspec_tui.preferences import Preferences

SECRET = "the-word-is-xylophone"


def keep(archive: Archive, text: str) -> str:
    """Save a conversation with this question."""
    key = archive.create("tiny", None)
    turns = Conversation([Turn("user", text), Turn("assistant", text, stop_reason="eos")])
    archive.save(key, turns.everything(), turns.last)
    return key


def found(folder: Path, text: str) -> list[str]:
    """The files below a folder that have this text."""
    files = [each for each in folder.rglob("*") if each.is_file()]
    return [each.name for each in files if text.encode() in each.read_bytes()]


def test_nothing_is_kept_of_a_private_chat(home: Path) -> None:
    with closing(Archive()) as kept:
        keep(kept, "an earlier chat")

    async def body() -> None:
        options = LaunchOptions(model="scripted", private=True)
        archive = Archive(private=True)
        app = ChatApp(EngineThread(Script([SECRET]).load), archive, options)
        async with app.run_test() as pilot:
            private = ChatPilot(app, pilot)
            await private.until(lambda: app.main.event_handler.state != "loading")
            app.theme = "nord"
            await private.press("up")
            assert app.main.composer.text == ""
            await private.ask(SECRET)
            assert [each.title for each in archive.list()] == [SECRET]
            app.main.composer.set_text(f"{SECRET}, not sent")
            await asyncio.sleep(1.5)
            assert app.autosave.kept is None

    asyncio.run(body())
    assert found(home, "an earlier chat")
    assert not found(home, SECRET)
    assert not found(home, "scripted") and Preferences.read() == Preferences()


def test_a_private_chat_is_asked_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[LaunchOptions, bool]] = []

    def record(options: LaunchOptions, archive: Archive) -> int:
        with closing(archive):
            started.append((options, archive.is_kept))
        return 0

    monkeypatch.setattr(launch, "launch", record)
    monkeypatch.setattr("localspec.cli.chat._require_streams", lambda _: None)
    for arguments in (["--private"], []):
        CliRunner().invoke(chat, arguments, standalone_mode=False, catch_exceptions=False)
    [(private, is_kept), (usual, is_usual_kept)] = started
    assert private.private and not is_kept and "chat is private" in private.notes[0]
    assert not usual.private and is_usual_kept and not usual.notes
    for more in (["-c"], ["--resume", "abc"]):
        with pytest.raises(InvalidValueError, match=r"leave --(continue|resume) out"):
            CliRunner().invoke(
                chat, ["--private", *more], standalone_mode=False, catch_exceptions=False
            )


@pytest.mark.parametrize("fts5", [True, False])
def test_forgotten_chats_are_in_no_file(
    home: Path, monkeypatch: pytest.MonkeyPatch, fts5: bool
) -> None:
    monkeypatch.setattr("localspec_tui.search_index.has_fts5", lambda _: fts5)
    with closing(Archive()) as archive:
        for number in range(20):
            key = keep(archive, f"{SECRET} {number}")
            archive.set_unsent(key, SECRET)
        archive.delete(key)
    folder = data_folder("sessions")
    aside = folder / "sessions.sqlite3.aside-1"
    aside.write_text(SECRET, encoding="utf-8")
    assert found(home, SECRET)
    CliRunner().invoke(forget, standalone_mode=False, catch_exceptions=False)
    assert found(home, SECRET)
    with closing(Archive()) as open_one:
        # A chat that is open meanwhile has its own back when it goes on.
        key = keep(open_one, "still open")
        done = CliRunner().invoke(
            forget, ["--chats", "--yes"], standalone_mode=False, catch_exceptions=False
        )
        assert "all conversations in" in done.stderr
        assert not found(home, SECRET) and not found(home, "xylophone")
        assert open_one.list() == []
        turns = Conversation([Turn("user", "still open")])
        open_one.save(key, turns.everything(), turns.last)
        assert len(open_one.list()) == 1


def test_chats_are_not_forgotten_without_a_question(home: Path) -> None:
    with closing(Archive()) as archive:
        keep(archive, SECRET)
    done = localspec("forget", "--chats")
    assert done.code == 2 and "--yes" in done.err and done.err.count("\n") == 1
    assert found(home, SECRET)


@pytest.mark.skipif(os.name != "posix", reason="POSIX terminals")
@pytest.mark.parametrize("answer", ["y", "n"])
def test_the_question_before_chats_are_forgotten(home: Path, answer: str) -> None:
    with closing(Archive()) as archive:
        keep(archive, SECRET)
    code, shown = on_terminal("forget", "--chats", answer=f"{answer}\n".encode(), after=b"[y/N]")
    assert code == 0 and f"Delete all conversations in {archive.file}?" in shown.replace("\r\n", "")
    assert ("nothing was deleted" in shown) == (answer == "n")
    assert ("are deleted" in shown) == (answer == "y")
    assert bool(found(home, SECRET)) == (answer == "n")


@pytest.mark.skipif(os.name != "posix", reason="POSIX terminals")
@pytest.mark.parametrize(("arguments", "answer"), [([], "y"), ([], "n"), (["--yes"], "")])
def test_the_question_before_texts_are_forgotten(
    home: Path, arguments: list[str], answer: str
) -> None:
    """At a terminal; a script is not asked."""
    stored = default_folder() / "a.tokens"
    stored.parent.mkdir(parents=True)
    stored.touch()
    typed, after = (f"{answer}\n".encode(), b"[y/N]") if answer else (b"", b"")
    code, shown = on_terminal("forget", *arguments, answer=typed, after=after)
    assert code == 0
    assert ("Delete all stored texts and caches?" in shown) == bool(answer)
    assert ("nothing was deleted" in shown) == stored.exists() == (answer == "n")
    assert localspec("forget").code == 0 and not stored.exists()


def test_chats_that_cannot_be_forgotten_are_one_line(home: Path) -> None:
    data_folder("sessions").parent.mkdir(parents=True, exist_ok=True)
    data_folder("sessions").touch()
    done = CliRunner().invoke(forget, ["--chats", "--yes"])
    assert isinstance(done.exception, LocalspecError)
    assert "cannot be opened: File exists" in str(done.exception)
    assert "\n" not in str(done.exception) and "are deleted" not in done.output


def test_chats_that_another_program_reads_are_not_called_forgotten(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_BUSY_TIMEOUT", 0)
    with closing(Archive()) as archive:
        keep(archive, SECRET)
    with closing(sqlite3.connect(archive.file)) as reader:
        reading = reader.execute("SELECT content FROM turn")
        assert reading.fetchone() == (SECRET,)
        done = CliRunner().invoke(forget, ["--chats", "--yes"])
        assert found(home, SECRET)
        assert isinstance(done.exception, LocalspecError)
        assert "its log still holds the conversations; end that program" in str(done.exception)
        assert "are deleted" not in done.output
        reading.close()
    done = CliRunner().invoke(forget, ["--chats", "--yes"], catch_exceptions=False)
    assert "all conversations in" in done.stderr and not found(home, SECRET)
