"""A session that is opened in the chat goes on with the settings that it was saved with."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest
from fakes.pilot import ChatPilot, running_chat
from fakes.saved_sessions import query
from fakes.scripted import Script

from localspec.conversation.turns import Turn
from localspec.errors import DrafterMismatchError
from localspec_tui.archive import Archive
from localspec_tui.default_options import with_defaults
from localspec_tui.launch_options import LaunchOptions
from localspec_tui.screens.choice_dialog import ChoiceDialog
from localspec_tui.screens.sessions import SessionsScreen
from localspec_tui.screens.settings import SettingsScreen
from localspec_tui.session_settings import SessionSettings

pytestmark = pytest.mark.usefixtures("home")
SAMPLING = {"temperature": 0.3, "top_k": 7}


async def open_saved(
    chat: ChatPilot, settings: SessionSettings, *, model: str = "scripted"
) -> None:
    """Save a session with these settings, and open it with Ctrl-O."""
    archive = chat.app.archive
    key = archive.create(model, None, settings)
    archive.save(key, [], Turn("user", "saved before"))
    await chat.press("ctrl+o")
    await chat.until(lambda: chat.is_on_top(SessionsScreen))
    await chat.press("enter")
    await chat.wait_idle()
    assert chat.contents == ["saved before"]


def test_its_drafters_and_its_sampling_are_used(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script()
        async with running_chat(script, tmp_path, draft="suffix", sampling={"seed": 1}) as chat:
            await chat.ask("hi")
            await open_saved(chat, SessionSettings("ngram,lookup", SAMPLING))
            assert chat.screen.event_handler.ready.draft == ("ngram", "lookup")
            await chat.ask("and now?")
            used = script.engines[0].slots.own.started[-1]
            assert dict(used.sampling) == SAMPLING and used.seed != 1
            assert chat.notes == []
            key = chat.app.autosave.key or ""
            assert chat.app.archive.settings(key) == SessionSettings("ngram,lookup", SAMPLING)

    asyncio.run(body())


def test_a_drafter_that_was_deleted_is_a_note_and_auto(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path, draft="ngram") as chat:
            await open_saved(chat, SessionSettings(f"suffix,{tmp_path}/small.gguf", SAMPLING))
            assert chat.notes == [
                "small.gguf is not on this machine any more; the drafters are those of --draft auto"
            ]
            assert chat.app.settings.current.draft == "auto"
            assert chat.screen.event_handler.ready.draft == ("suffix",)

    asyncio.run(body())


def test_a_drafter_that_does_not_fit_is_a_note_and_the_sampling_is_used(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script()
        script.fails["switch"] = DrafterMismatchError("small.gguf does not fit")
        (tmp_path / "small.gguf").touch()
        async with running_chat(script, tmp_path, draft="ngram") as chat:
            await open_saved(chat, SessionSettings(f"{tmp_path}/small.gguf", SAMPLING))
            assert chat.notes == ["small.gguf does not fit"]
            assert (chat.app.settings.current.draft, chat.app.settings.current.sampling) == (
                "ngram",
                SAMPLING,
            )
            await chat.ask("and now?")
            assert script.engines[0].slots.own.started[-1].sampling["temperature"] == 0.3
            await chat.press("ctrl+s")
            await chat.until(lambda: chat.is_on_top(SettingsScreen))
            assert chat.app.screen.query_one("#temperature").value == "0.3"
            assert chat.app.screen.query_one("#draft").value == "ngram"

    asyncio.run(body())


def test_with_another_model_its_drafters_are_not_used(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path, size=(120, 24), draft="ngram") as chat:
            saved = SessionSettings("lookup", SAMPLING)
            await open_saved(chat, saved, model="/models/large.gguf")
            assert chat.notes == [
                "this conversation is with large.gguf, and scripted goes on with it; to change "
                "that: /model /models/large.gguf"
            ]
            assert (chat.app.settings.current.draft, chat.app.settings.current.sampling) == (
                "ngram",
                SAMPLING,
            )

    asyncio.run(body())


@pytest.mark.slow
def test_that_the_oldest_messages_are_dropped_is_kept(tmp_path: Path) -> None:
    """Also where that was chosen to go on with an answer, and no question followed."""

    async def chosen() -> None:
        script = Script(["word " * 100, "word " * 300], context=200)
        async with running_chat(script, tmp_path) as chat:
            await chat.ask("first")
            await chat.send("second")
            await chat.until(lambda: chat.is_on_top(ChoiceDialog))
            await chat.press("down", "enter")
            await chat.wait_idle()
            assert chat.app.archive.settings(chat.app.autosave.key or "").drop_oldest

    async def opened_again() -> None:
        with closing(Archive(tmp_path / "sessions.sqlite3")) as archive:
            begun = LaunchOptions(model="scripted", session=archive.latest())
            assert with_defaults(begun, archive).drop_oldest
        async with running_chat(Script(), tmp_path, latest=True, drop_oldest=True) as chat:
            session = chat.app.engine_thread.session
            assert session and session.when_full == "drop" and chat.app.settings.current.drop_oldest

    async def opened_from_the_list() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            session = chat.app.engine_thread.session
            assert session and session.when_full == "stop"
            await open_saved(chat, SessionSettings("suffix", {}, drop_oldest=True))
            assert session.when_full == "drop" and chat.app.settings.current.drop_oldest
            await open_saved(chat, SessionSettings("suffix", {}))
            assert session.when_full == "stop" and not chat.app.settings.current.drop_oldest

    asyncio.run(chosen())
    asyncio.run(opened_again())
    asyncio.run(opened_from_the_list())


def test_the_model_that_has_answered_again_is_kept(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("hi")
            assert chat.app.archive.list()[0].model == "scripted"
            await chat.ask("/model other")
            assert chat.app.archive.list()[0].model == "scripted"
            await chat.press("ctrl+r")
            await chat.wait_idle()
            assert chat.app.archive.list()[0].model == "other"

    asyncio.run(body())


def test_settings_that_are_damaged_are_those_of_a_new_conversation(tmp_path: Path) -> None:
    async def body() -> None:
        sampling = {"temperature": 0.9}
        async with running_chat(Script(), tmp_path, draft="ngram", sampling=sampling) as chat:
            damaged = SessionSettings("lookup", {"temperature": "warm"})
            await open_saved(chat, damaged)
            assert query(tmp_path / "sessions.sqlite3", "SELECT count(*) FROM session") == [(1,)]
            assert chat.app.settings.current == SessionSettings()

    asyncio.run(body())
