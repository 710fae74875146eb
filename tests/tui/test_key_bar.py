"""The keys in the last row: whole ones only, the most needed first."""

import asyncio
from pathlib import Path

import pytest
from fakes.pilot import ChatPilot, running_chat
from fakes.scripted import Script

from localspec_tui.widgets.key_bar import KeyBar


def shown(chat: ChatPilot) -> list[str]:
    """The keys whose whole width is on the screen."""
    bar = chat.app.screen.query_one(KeyBar)
    keys = [each for each in bar.query("FooterKey") if each.display]
    assert all(each.region.right <= bar.size.width for each in keys)
    return [each.key_display for each in keys]  # type: ignore[attr-defined]


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
