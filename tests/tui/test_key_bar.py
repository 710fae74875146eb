"""The keys in the last row: whole ones only, the most needed first."""

import asyncio
from pathlib import Path

import pytest
from fakes.pilot import ChatPilot, running_chat
from fakes.scripted import Script
from rich.cells import cell_len

from localspec_tui.screens.help import HelpScreen
from localspec_tui.widgets.key_bar import KeyBar


def row(chat: ChatPilot) -> str:
    """The row of the keys."""
    bar = chat.app.screen.query_one(KeyBar)
    row = str(bar.render())
    assert cell_len(row) == bar.size.width
    return row


def shown(chat: ChatPilot) -> list[str]:
    """The words of the row."""
    return row(chat).replace("▏", " ").split()


@pytest.mark.parametrize("size", [(60, 20), (40, 15)], ids=["60x20", "40x15"])
def test_a_narrow_terminal_keeps_the_most_needed_keys(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    async def body() -> None:
        script = Script(["word " * 200], rate=20)
        async with running_chat(script, tmp_path, size=size) as chat:
            await chat.until(lambda: {"⏎", "f1", "^p"} <= {*shown(chat)})
            await chat.send("Hi")
            await chat.until(lambda: {"⏎", "esc", "f1"} <= {*shown(chat)})
            script.rate = 0
            await chat.wait_idle()

    asyncio.run(body())


def test_a_wider_terminal_shows_more_keys(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path, size=(40, 15)) as chat:
            await chat.until(lambda: "f1" in shown(chat) and "^o" not in shown(chat))
            await chat.pilot.resize_terminal(80, 24)
            await chat.until(lambda: {"^n", "^o", "^s", "f1"} <= {*shown(chat)})

    asyncio.run(body())


def test_an_edit_that_was_sent_is_not_left_any_more(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(["Yes."]), tmp_path, size=(100, 24)) as chat:
            await chat.ask("hi")
            await chat.until(lambda: "Back" not in row(chat))
            await chat.press("shift+tab", "e")
            await chat.until(lambda: "esc Back" in row(chat) and "⏎ Send" in row(chat))
            await chat.ask("No.")
            await chat.until(lambda: "Back" not in row(chat) and "^g Go on" in row(chat))
            await chat.press("up", "shift+tab")
            await chat.until(lambda: "←→ Variants" in row(chat) and "esc Back" in row(chat))

    asyncio.run(body())


def test_a_click_presses_the_key_that_the_mouse_shows(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(["Yes."]), tmp_path, size=(100, 24)) as chat:
            bar = chat.screen.query_one(KeyBar)
            await chat.until(lambda: "f1 Help" in row(chat))
            await chat.pilot.hover(KeyBar, offset=(row(chat).index("Help"), 0))
            assert bar.tooltip == "all keys and commands"
            await chat.pilot.hover(KeyBar, offset=(99, 0))
            assert bar.tooltip == "find a command by name"
            await chat.pilot.click(KeyBar, offset=(row(chat).index("f1"), 0))
            await chat.until(lambda: chat.is_on_top(HelpScreen))

    asyncio.run(body())
