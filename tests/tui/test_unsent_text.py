"""Text that was typed and not sent: it is kept with its session."""

import asyncio
from pathlib import Path

import pytest
from fakes.pilot import ChatPilot, running_chat
from fakes.saved_sessions import query, save_session, titles
from fakes.scripted import Script

from localspec_tui.archive import Archive
from localspec_tui.notes import last_words
from localspec_tui.screens.sessions import SessionsScreen

pytestmark = pytest.mark.usefixtures("home")
HALF = "Half a thought,\nand a second li"


async def open_session(chat: ChatPilot, title: str) -> None:
    """Choose a session with Ctrl-O."""
    await chat.press("ctrl+o")
    await chat.until(lambda: chat.is_on_top(SessionsScreen))
    await chat.press(*title, "enter")
    await chat.wait_idle()


@pytest.mark.parametrize("key", ["ctrl+q", "exit"])
@pytest.mark.parametrize("sent", [["hi"], []])
def test_it_is_in_the_box_again_when_the_session_goes_on(
    tmp_path: Path, key: str, sent: list[str]
) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            for text in sent:
                await chat.ask(text)
            chat.screen.composer.set_text(HALF)
            if key == "exit":  # as when the terminal is closed
                chat.app.exit()
            else:
                await chat.press(key)
            await chat.until(lambda: not chat.app.is_running)
        assert chat.app.lost_text == ""
        async with running_chat(Script(), tmp_path, latest=True) as chat:
            assert chat.contents == (["hi", "Hello, I am a script."] if sent else [])
            composer = chat.screen.composer
            assert composer.text == HALF and composer.cursor_location == (1, 15)
            await chat.press("!", "enter")
            await chat.wait_idle()
            assert chat.contents[-2] == f"{HALF}!"
        async with running_chat(Script(), tmp_path, latest=True) as chat:
            assert chat.screen.composer.text == ""
            assert len(chat.app.archive.list()) == 1

    asyncio.run(body())


@pytest.mark.slow
def test_each_session_has_its_own(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("first")
            await chat.press("ctrl+n")
            await chat.wait_idle()
            await chat.ask("second")
            chat.screen.composer.set_text("for the second")
            await open_session(chat, "first")
            assert chat.contents[0] == "first" and chat.screen.composer.text == ""
            chat.screen.composer.set_text("for the first")
            await open_session(chat, "second")
            assert chat.screen.composer.text == "for the second"
            await open_session(chat, "first")
            assert chat.screen.composer.text == "for the first"

    asyncio.run(body())


def test_a_new_chat_takes_it_along(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("first")
            chat.screen.composer.set_text("rather ask this elsewhere")
            chat.screen._save()
            await chat.press("ctrl+n")
            await chat.wait_idle()
            assert chat.screen.composer.text == "rather ask this elsewhere"
            await open_session(chat, "first")
            assert chat.screen.composer.text == ""
            assert chat.app.archive.list()[0].title == "rather ask this elsewhere"

    asyncio.run(body())


@pytest.mark.slow
def test_a_session_of_nothing_else_ends_with_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("first")
            await chat.press("ctrl+n")
            await chat.wait_idle()
            chat.screen.composer.set_text("never mind")
            await open_session(chat, "first")
            assert titles(chat.app.archive) == ["never mind", "first"]
            await chat.press("ctrl+o")
            await chat.until(lambda: chat.is_on_top(SessionsScreen))
            assert "not sent yet" in chat.text and "2 messages" in chat.text
            await chat.press("escape")
            await open_session(chat, "never")
            assert chat.screen.composer.text == "never mind"
            chat.screen.composer.load_text("")
            await chat.press("ctrl+d")
            await chat.until(lambda: not chat.app.is_running)
        assert chat.app.autosave.kept is None
        archive = Archive(tmp_path / "sessions.sqlite3")
        assert titles(archive) == ["first"]
        archive.close()

    asyncio.run(body())


def test_a_killed_chat_loses_at_most_a_second_of_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("hi")
            chat.screen.composer.set_text(HALF)
            file, statement = tmp_path / "sessions.sqlite3", "SELECT unsent FROM session"
            await chat.until(lambda: query(file, statement) == [(HALF,)])

    asyncio.run(body())


def test_an_edit_is_kept_where_it_changed_the_question(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("question")
            chat.screen.composer.set_text("half typed")
            await chat.press("shift+tab", "up", "e")
            await chat.until(lambda: chat.screen.unsent.edited)
            assert chat.screen.unsent.text == "half typed"
            await chat.press("!")
            assert chat.screen.unsent.text == "question!"
            await chat.press("escape")
            assert chat.screen.unsent.text == chat.screen.composer.text == "half typed"
            await chat.press("!")
            assert chat.screen.composer.text == "half typed!"

    asyncio.run(body())


def test_the_edited_text_of_an_answer_is_not_lost_in_another_session(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            save_session(chat.app.archive, "other")
            await chat.ask("first")
            chat.screen.composer.set_text("half typed")
            await chat.press("shift+tab", "e")
            await chat.until(lambda: chat.screen.unsent.edits_answer)
            await chat.press(*" And")
            await open_session(chat, "other")
            assert chat.screen.composer.text == "" and not chat.screen.unsent.edited
            assert any("Up brings your text back" in note for note in chat.notes)
            await chat.press("up")
            assert chat.screen.composer.text == "Hello, I am a script. And"
            await chat.press("ctrl+u")
            await open_session(chat, "first")
            assert chat.screen.composer.text == "half typed"

    asyncio.run(body())


def test_the_edited_text_of_an_answer_is_printed_at_the_end(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("first")
            await chat.press("shift+tab", "e")
            await chat.until(lambda: chat.screen.unsent.edits_answer)
            assert chat.screen.unsent.edited_answer == ""
            await chat.press(*" And")
        assert (chat.app.lost_text, chat.app.lost_edit) == ("", "Hello, I am a script. And")
        words = "\n".join(last_words([], None, edit=chat.app.lost_edit))
        assert words == "the edited text of an answer was not sent:\n  Hello, I am a script. And"

    asyncio.run(body())


@pytest.mark.parametrize("text", ["", " \n", "/quit"])
def test_spaces_and_commands_are_not_kept(tmp_path: Path, text: str) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            chat.screen.composer.set_text(text)
        archive = Archive(tmp_path / "sessions.sqlite3")
        assert archive.list() == []
        archive.close()

    asyncio.run(body())


def test_what_cannot_be_kept_is_told(tmp_path: Path) -> None:
    async def body() -> None:
        no_folder = tmp_path / "file"
        no_folder.write_bytes(b"")
        async with running_chat(Script(), no_folder) as chat:
            chat.screen.composer.set_text(HALF)
        assert chat.app.lost_text == HALF

    asyncio.run(body())
