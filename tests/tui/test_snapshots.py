"""The screens, cell by cell, at four sizes and in three kinds of themes.

    LOCALSPEC_SNAPSHOTS=write pytest tests/tui/test_snapshots.py

writes the snapshots.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from fakes import scripted
from fakes.pilot import ChatPilot, running_chat
from fakes.scripted import Script
from fakes.snapshot import snapshot
from textual.widgets import Input, TextArea

from localspec.engine import scheduler
from localspec.gguf.files import ModelFiles
from localspec.hub.store import StoredModel
from localspec.models.inventory import InventoryEntry
from localspec_tui import archive
from localspec_tui.screens import settings
from localspec_tui.widgets import thought_view

FOLDER = Path(__file__).parent / "snapshots"
SIZES = [(120, 40), (80, 24), (60, 20), (40, 12)]
THEMES = ["textual-dark", "textual-light", "ansi-dark"]
WRITE = os.environ.get("LOCALSPEC_SNAPSHOTS") == "write"
ANSWER = """<think>A list first,
then the code.</think>
It is **short**, and takes `n` steps:

1. two numbers
2. their *sum*

```python
def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a
```

| n | value |
|---|-------|
| 9 | 34 |

> Déjà vu: 日本.
"""


@pytest.fixture(autouse=True)
def reproducible(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call of a clock takes a millisecond, and two models are on this disk."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    ticks = count()
    for module in (scheduler, scripted):
        monkeypatch.setattr(module, "running_clock", lambda: next(ticks) / 1000)
    monkeypatch.setattr(archive, "uuid4", lambda: UUID(int=2**127))
    monkeypatch.setattr(thought_view, "running_clock", lambda: 0.0)
    monkeypatch.setattr(settings, "model_inventory", lambda: list(on_disk(tmp_path)))


def on_disk(folder: Path) -> Iterator[InventoryEntry]:
    for name, size in (("qwen3-8b", 5_030_000), ("Qwen/Qwen3-0.6B-GGUF:Q8_0", 639_000)):
        file = folder / f"{name.replace('/', '-')}.gguf"
        file.write_bytes(bytes(size))
        stored = StoredModel(name, "r", ModelFiles((file.name,)), (file,), frozenset([file]))
        yield InventoryEntry(name, stored, ())


async def first(_chat: ChatPilot) -> AsyncIterator[str]:
    """The first screen."""
    yield "first"


async def others(chat: ChatPilot) -> AsyncIterator[str]:
    """The names of the other screens, while each is shown."""
    await chat.ask("Write a function for Fibonacci numbers, please.")
    await chat.ask("And now?\n\nWith two lines.")
    show_again(chat)
    yield "answer"
    await chat.press("ctrl+r")
    await chat.wait_idle()
    show_again(chat)
    await chat.press("shift+tab", "up")
    yield "focused"
    for key in ("escape", "ctrl+t", "ctrl+l"):
        await chat.press(key)
        # Each changes the rows, and the place in the text is kept by what the screen shows.
        await settle(chat)
    yield "origins"
    await chat.press("ctrl+t", "ctrl+l", "ctrl+o")
    yield "sessions"
    await chat.press("escape", "ctrl+s")
    yield "settings"
    await chat.press("escape", "f2")
    yield "system"
    await chat.press("escape", "f1")
    yield "help"
    await chat.press("escape")
    chat.screen.dialogs.context_full(lambda: None)
    yield "full"


def show_again(chat: ChatPilot) -> None:
    """Show the answers as finished turns, which does not depend on how they were streamed."""
    chat.screen.view.show([])
    chat.screen.view.show(chat.screen.conversation.turns)


async def settle(chat: ChatPilot) -> None:
    """Wait until the screen does not change any more."""
    await chat.wait_idle()
    # A thread finds the models that the settings list.
    await chat.app.workers.wait_for_complete()
    seen: list[str] = []
    # A busy machine gives a box its focus late.
    while len(seen) < 6 or len({*seen[-6:]}) > 1:
        show_cursors(chat)
        await chat.pilot.pause(0.05)
        seen.append(snapshot(chat.app))


def show_cursors(chat: ChatPilot) -> None:
    """Let no box, of the screens below a dialog neither, be in the middle of a blink."""
    for screen in chat.app.screen_stack:
        for box in screen.query("Input, TextArea"):
            assert isinstance(box, (Input, TextArea))
            # Not by `cursor_blink`: a TextArea then shows a line as drawn before it had its focus.
            box._pause_blink(visible=box.has_focus)


def expected(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_screens_equal_their_snapshots(tmp_path: Path, size: tuple[int, int], theme: str) -> None:
    drawn_with = FOLDER / "textual-version.txt"
    if WRITE:
        FOLDER.mkdir(exist_ok=True)
        drawn_with.write_text(version("textual") + "\n")
    elif expected(drawn_with).strip() != version("textual"):
        pytest.skip(f"they are of Textual {expected(drawn_with).strip()}")
    different: list[str] = []

    async def body(screens: Callable[[ChatPilot], AsyncIterator[str]], **options: Any) -> None:
        script = Script([ANSWER, "Yes. " * 30], reason="no drafter is known for qwen3-8b.gguf")
        async with running_chat(script, tmp_path, size=size, theme=theme, **options) as chat:
            async for name in screens(chat):
                await settle(chat)
                file = FOLDER / f"{name}-{size[0]}x{size[1]}-{theme}.txt"
                if WRITE:
                    file.write_text(snapshot(chat.app), encoding="utf-8")
                elif snapshot(chat.app) != expected(file):
                    different.append(f"{file.name} is now\n{snapshot(chat.app)}")

    asyncio.run(body(first, bundled=True))
    asyncio.run(body(others, model="qwen3-8b"))
    assert not different, different[0]
