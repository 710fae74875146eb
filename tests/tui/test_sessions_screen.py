"""The sessions screen: search, titles, export and deletion."""

import asyncio
import json
from pathlib import Path

import pytest
from fakes.pilot import ChatPilot, running_chat
from fakes.saved_sessions import save_session
from fakes.scripted import Script
from textual.widgets import Input, OptionList

from localspec_tui.screens import sessions
from localspec_tui.screens.choice_dialog import ChoiceDialog
from localspec_tui.screens.input_dialog import InputDialog
from localspec_tui.screens.sessions import SessionsScreen

pytestmark = pytest.mark.usefixtures("home")


async def three_sessions(chat: ChatPilot) -> None:
    for text in ("Tell me about whales", "Sort a list in Rust", "Whittling wood"):
        await chat.press("ctrl+n")
        await chat.wait_idle()
        await chat.ask(text)


@pytest.mark.slow
def test_sessions_are_found_by_title_and_by_content(tmp_path: Path) -> None:
    async def body() -> None:
        answers = ["They sing.", "Use sort_unstable.", "Take a knife."]
        async with running_chat(Script(answers), tmp_path) as chat:
            await three_sessions(chat)
            await chat.press("ctrl+o")
            await chat.until(lambda: chat.is_on_top(SessionsScreen))
            assert chat.options == [
                "Whittling wood (open)",
                "Sort a list in Rust",
                "Tell me about whales",
            ]
            await chat.press(*"whal")
            assert chat.options[0] == "Tell me about whales"
            await chat.press(*["backspace"] * 4, *"unstable")
            assert chat.options == ["Sort a list in Rust"]
            await chat.press("enter")
            await chat.wait_idle()
            assert chat.contents == ["Sort a list in Rust", "Use sort_unstable."]
            assert "Use sort_unstable." in chat.text

    asyncio.run(body())


def test_titles_have_every_word_and_those_with_the_phrase_come_first(tmp_path: Path) -> None:
    titles = ("A list of whales", "Whales: a LIST", "ha " * 20 + "h", "Rust lists", "List whales")

    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            for title in titles:
                save_session(chat.app.archive, title)
            await chat.press("ctrl+o")
            await chat.until(lambda: chat.is_on_top(SessionsScreen))
            box = chat.app.screen.query_one(Input)
            found = [titles[4], titles[1], titles[0]]
            for typed, expected in (
                ("list whales", found),
                ("whales  LIST", found),
                ("rust whales", []),
                ("hahahahahahahahahahahahahaha", []),
            ):
                box.value = typed
                await chat.pilot.pause()
                assert chat.options == expected

    asyncio.run(body())


def test_keys_lead_to_every_session(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            for number in range(230):
                save_session(chat.app.archive, f"session {number:03}")
            await chat.press("ctrl+o")
            await chat.until(lambda: chat.is_on_top(SessionsScreen))
            options = chat.app.screen.query_one(OptionList)
            places = []
            for key in ("end", "up", "home", "pagedown", "pageup", "ctrl+end", "ctrl+home"):
                await chat.press(key)
                places.append(options.highlighted)
            assert places == [229, 228, 0, places[3], 0, 229, 0]
            assert places[3] and places[3] > 2
            await chat.press("end", *"ses", "home", "x")
            assert chat.app.screen.query_one(Input).value == "xses"

    asyncio.run(body())


def test_what_is_not_listed_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        monkeypatch.setattr(sessions, "_MAX_ROWS", 3)
        async with running_chat(Script(), tmp_path) as chat:
            for title in ("one", "two", "three", "four", "five"):
                save_session(chat.app.archive, title)
            await chat.press("ctrl+o")
            await chat.until(lambda: chat.is_on_top(SessionsScreen))
            assert chat.options == ["five", "four", "three"]
            assert "2 more: type a word of theirs" in chat.text
            await chat.press(*"two")
            assert chat.options == ["two"] and "more:" not in chat.text

    asyncio.run(body())


@pytest.mark.slow
def test_sessions_are_renamed_exported_and_deleted(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(["They sing.", "Sorted.", "Cut."]), tmp_path) as chat:
            await three_sessions(chat)
            await chat.press("ctrl+o")
            await chat.until(lambda: chat.is_on_top(SessionsScreen))
            await chat.press("down", "down", "ctrl+t")
            await chat.until(lambda: chat.is_on_top(InputDialog))
            await chat.press(*" !", "enter")
            await chat.until(lambda: chat.is_on_top(SessionsScreen))
            assert chat.options[2] == "Tell me about whales !"
            assert chat.app.screen.query_one(OptionList).highlighted == 2
            for name in ("whales.json", "whales.md"):
                await chat.press(*["up"] * 3, "down", "down", "ctrl+s")
                await chat.until(lambda: chat.is_on_top(InputDialog))
                chat.app.screen.query_one(Input).value = str(tmp_path / name)
                await chat.press("enter")
                await chat.until(lambda name=name: (tmp_path / name).exists())
            assert "They sing." in (tmp_path / "whales.md").read_text()
            assert (
                json.loads((tmp_path / "whales.json").read_text())["title"]
                == "Tell me about whales !"
            )
            await chat.press(*["up"] * 3, "down", "down", "ctrl+d")
            await chat.until(lambda: chat.is_on_top(ChoiceDialog))
            await chat.press("down", "enter")
            await chat.until(lambda: chat.is_on_top(SessionsScreen))
            assert chat.options == ["Whittling wood (open)", "Sort a list in Rust"]
            assert chat.app.screen.query_one(OptionList).highlighted == 1

    asyncio.run(body())


@pytest.mark.parametrize("size", [(120, 36), (80, 24), (60, 20), (40, 12)])
def test_the_question_before_a_deletion_is_shown_whole(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    async def body() -> None:
        async with running_chat(Script(["They sing."]), tmp_path, size=size) as chat:
            await chat.ask("Tell me everything about whales and their songs, please, and slowly")
            await chat.press("ctrl+n", "ctrl+o")
            await chat.until(lambda: chat.is_on_top(SessionsScreen))
            await chat.press("ctrl+d")
            await chat.until(lambda: chat.is_on_top(ChoiceDialog))
            await chat.pilot.pause()
            shown = " ".join(chat.text.replace("│", " ").split())
            assert "Delete “Tell me everything about whales" in shown
            assert "2 messages?" in shown
            assert "Keep it" in shown and "Delete this conversation" in shown

    asyncio.run(body())


def test_a_first_message_is_suggested_in_an_empty_conversation_only(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path, bundled=True) as chat:
            save_session(chat.app.archive, "Sort a list in Rust")
            assert "Tab takes this" in chat.text
            await chat.press("ctrl+o")
            await chat.until(lambda: chat.is_on_top(SessionsScreen))
            await chat.press("enter")
            await chat.wait_idle()
            assert "Write a message" in chat.text
            await chat.press("tab")
            assert chat.screen.composer.text == ""

    asyncio.run(body())


def test_no_first_message_is_suggested_behind_one(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path, bundled=True) as chat:
            assert "Tab takes this" in chat.text
            chat.app.engine_thread.send("hi")
            await chat.wait_idle()
            assert "Tab takes this" not in chat.text

    asyncio.run(body())


def test_the_open_session_cannot_be_deleted(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("stay")
            await chat.press("ctrl+o")
            await chat.until(lambda: chat.is_on_top(SessionsScreen))
            await chat.press("ctrl+d")
            await chat.pilot.pause()
            assert chat.is_on_top(SessionsScreen)
            assert len(chat.app.archive.list()) == 1

    asyncio.run(body())


def test_an_empty_list_of_sessions(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.press("ctrl+o")
            await chat.until(lambda: "No conversation found" in chat.text)
            await chat.press("ctrl+t", "ctrl+s", "ctrl+d", "enter", "escape")
            await chat.until(lambda: not chat.is_on_top(SessionsScreen))

    asyncio.run(body())
