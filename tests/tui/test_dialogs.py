"""Screens over the chat are left once, however often the user does that before they are gone."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.pilot import ChatPilot, running_chat
from fakes.saved_sessions import save_session
from fakes.scripted import Script
from textual.css.query import NoMatches
from textual.events import Paste
from textual.screen import Screen
from textual.widgets import Input

from localspec_tui import dialogs
from localspec_tui.app import ChatApp
from localspec_tui.screens.choice_dialog import ChoiceDialog
from localspec_tui.screens.dialog import Palette
from localspec_tui.screens.input_dialog import InputDialog
from localspec_tui.screens.sessions import SessionsScreen
from localspec_tui.screens.settings import SettingsScreen

pytestmark = pytest.mark.usefixtures("home")
OPENINGS: dict[str, Callable[[ChatApp], object]] = {
    "help": ChatApp.action_help,
    "palette": ChatApp.action_command_palette,
    "themes": ChatApp.search_themes,
    "sessions": lambda app: app.main.dialogs.sessions(),
    "settings": lambda app: app.main.dialogs.settings(),
    "system prompt": lambda app: app.main.dialogs.system_prompt(),
    "a full context": lambda app: app.main.dialogs.context_full(lambda: None),
}


async def opened(chat: ChatPilot, kind: type[Screen[object]]) -> Screen[object]:
    await chat.until(lambda: chat.is_on_top(kind))
    return chat.app.screen


def test_every_screen_is_left_once(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            for open_screen in OPENINGS.values():
                open_screen(chat.app)
                await chat.until(lambda: chat.app.screen is not chat.screen)
                screen = await opened(chat, type(chat.app.screen))
                for _ in range(2):
                    screen.dismiss(None)
                await chat.until(lambda: chat.is_on_top(type(chat.screen)))
            assert chat.app.screen_stack == [chat.screen]

    asyncio.run(body())


def test_models_that_are_found_when_the_settings_are_left_are_shown_nowhere(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            chat.app.main.dialogs.settings()
            screen = await opened(chat, SettingsScreen)
            assert isinstance(screen, SettingsScreen)
            screen.dismiss(None)
            await chat.until(lambda: not screen.query("*"))
            for show in (lambda: screen._list_models([]), lambda: screen._show_problem("none")):
                with pytest.raises(NoMatches):
                    show()
                screen._unless_left(show)

    asyncio.run(body())


def test_two_enters_at_once_choose_once(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("here")
            save_session(chat.app.archive, "there")
            await chat.press("ctrl+o")
            screen = await opened(chat, SessionsScreen)
            assert isinstance(screen, SessionsScreen)
            screen._open()
            screen._open()
            await chat.until(lambda: chat.contents == ["there"])
            assert chat.app.screen_stack == [chat.screen]

    asyncio.run(body())


def test_a_dialog_over_a_screen_leaves_that_open(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("here")
            await chat.press("ctrl+o")
            await opened(chat, SessionsScreen)
            await chat.press("ctrl+t")
            dialog = await opened(chat, InputDialog)
            field = dialog.query_one(Input)
            for _ in range(2):
                field.post_message(Input.Submitted(field, "another title"))
            await chat.until(lambda: chat.app.archive.list()[0].title == "another title")
            await chat.pilot.pause(0.2)
            assert chat.is_on_top(SessionsScreen)

    asyncio.run(body())


def test_the_palette_finds_commands_and_themes(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.press("ctrl+p")
            await opened(chat, Palette)
            await chat.press(*"theme")
            await chat.until(lambda: "Other colours" in chat.text)
            await chat.press("enter")
            await chat.until(lambda: "Search for themes" in chat.text)

    asyncio.run(body())


def end_pause(chat: ChatPilot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a screen open that waits until nothing is typed."""
    due = chat.screen.dialogs._due
    assert due
    monkeypatch.setattr(dialogs, "_PAUSE", 0.0)
    chat.screen.dialogs._open_unless_typing(due)


def test_a_full_context_does_not_take_what_is_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question waits for a pause, and a letter that is typed at it closes it."""

    async def body() -> None:
        monkeypatch.setattr(dialogs, "_PAUSE", 600.0)
        async with running_chat(Script(["word " * 160], rate=40, context=140), tmp_path) as chat:
            await chat.send("first")
            await chat.press(*"next")
            await chat.until(lambda: chat.screen.dialogs._due)
            await chat.press(*" one")
            assert chat.app.screen is chat.screen
            end_pause(chat, monkeypatch)
            await opened(chat, ChoiceDialog)
            await chat.press(*", two")
            assert chat.app.screen is chat.screen
            chat.app.post_message(Paste(" and three"))
            await chat.until(lambda: chat.screen.composer.text == "next one, two and three")
            await chat.press("enter")
            await opened(chat, ChoiceDialog)
            assert chat.contents[::2] == ["first"]

    asyncio.run(body())


def test_a_full_context_is_not_asked_about_where_it_was_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        monkeypatch.setattr(dialogs, "_PAUSE", 600.0)
        async with running_chat(Script(["word " * 160], context=140), tmp_path) as chat:
            await chat.press("h", "i", "enter")
            await chat.until(lambda: chat.screen.dialogs._due)
            await chat.press("ctrl+n")
            await chat.wait_idle()
            end_pause(chat, monkeypatch)
            assert chat.app.screen is chat.screen

    asyncio.run(body())


def test_settings_do_not_open_by_themselves_where_another_model_is_there_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        monkeypatch.setattr(dialogs, "_PAUSE", 600.0)
        async with running_chat(Script(), tmp_path) as chat:
            await chat.press(*"/model other")
            chat.screen.dialogs.no_model("no such model")
            assert chat.screen.event_handler.ready
            end_pause(chat, monkeypatch)
            assert chat.app.screen is chat.screen

    asyncio.run(body())
