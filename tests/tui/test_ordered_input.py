"""Keys that are typed quickly act in the order in which they are pressed."""

import asyncio
from pathlib import Path

import pytest
from fakes.pilot import ChatPilot, running_chat
from fakes.scripted import Script
from textual import events
from textual.widgets import Input

from localspec_tui.screens.input_dialog import InputDialog
from localspec_tui.screens.sessions import SessionsScreen
from localspec_tui.screens.settings import SettingsScreen


def _type(chat: ChatPilot) -> None:
    """Type over the value of the box that has the focus, all keys at once."""
    for key in ["home", *["delete"] * len(_box(chat).value), *"abc", *["backspace"] * 3, *"xyz"]:
        chat.app.post_message(events.Key(key, key if len(key) == 1 else None))


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
