"""Keys that are typed quickly act in the order in which they are pressed."""

import asyncio
from pathlib import Path

import pytest
from fakes.pilot import ChatPilot, running_chat
from fakes.scripted import Script
from textual import events
from textual.widgets import Input

from localspec_tui import typed_keys
from localspec_tui.screens.input_dialog import InputDialog
from localspec_tui.screens.sessions import SessionsScreen
from localspec_tui.screens.settings import SettingsScreen


def _type(chat: ChatPilot) -> None:
    """Type over the value of the box that has the focus, all keys at once."""
    length = len(_box(chat).value)
    _post(chat, "home", *["delete"] * length, *"abc", *["backspace"] * 3, *"xyz")


def _post(chat: ChatPilot, *keys: str) -> None:
    """Press all keys at once; an Enter comes after those before it, and is no part of a paste."""
    for key in keys:
        event = events.Key(key, key if len(key) == 1 else None)
        event.time += key == "enter"
        chat.app.post_message(event)


def _box(chat: ChatPilot) -> Input:
    box = chat.app.focused
    assert isinstance(box, Input)
    return box


@pytest.mark.parametrize(
    ("keys", "screen"),
    [
        (["ctrl+o"], SessionsScreen),
        (["ctrl+s"], SettingsScreen),
        (["ctrl+o", "ctrl+t"], InputDialog),
    ],
    ids=["sessions", "settings", "rename"],
)
def test_keys_act_in_order(tmp_path: Path, keys: list[str], screen: type) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("a question")
            for key in keys:
                await chat.press(key)
                await chat.pilot.pause()
            await chat.until(lambda: chat.is_on_top(screen))
            _type(chat)
            await chat.pilot.pause(0.3)
            await chat.until(lambda: _box(chat).value)
            assert _box(chat).value == "xyz"

    asyncio.run(body())


@pytest.mark.parametrize(
    ("keys", "box", "composer"),
    [
        (["a", "ctrl+o", *"xy"], "xy", "a"),
        (["f1", "escape", "ctrl+o", "ctrl+t", *["backspace"] * 10, *"xy"], "xy", ""),
        (["ctrl+f", *"xy"], "xy", ""),
        (["a", "ctrl+o", *"xy", "escape", "b"], None, "ab"),
        ([*"/sessions", "enter", *"xy"], "xy", ""),
        ([*"/save", "enter", *["backspace"] * 50, *"xy"], "xy", ""),
        (["ctrl+o", *"a question", "enter", *"xy"], None, "xy"),
    ],
    ids=["sessions", "rename", "find", "back", "command", "command's dialog", "closed"],
)
def test_keys_wait_for_the_screen_that_the_key_before_them_opens(
    tmp_path: Path, keys: list[str], box: str | None, composer: str
) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("a question")
            _post(chat, *keys)

            def has_arrived() -> bool:
                focused = chat.app.focused
                value = focused.value if isinstance(focused, Input) else None
                return (value, chat.screen.composer.text) == (box, composer)

            await chat.until(has_arrived)

    asyncio.run(body())


def test_keys_do_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key may be lost with the widget that had the focus."""
    monkeypatch.setattr(typed_keys, "_PATIENCE", 0.1)

    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            monkeypatch.setattr(chat.screen.composer, "_forward_event", lambda _event: None)
            _post(chat, "ctrl+o")
            await chat.pilot.pause()
            monkeypatch.undo()
            _post(chat, *"xy")
            await chat.until(lambda: chat.screen.composer.text == "xy")

    asyncio.run(body())
