"""What is drawn while an answer grows: little, and nothing is missing."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest
from fakes.drawn_screen import DrawnScreen
from fakes.markdown_texts import cut, document
from fakes.widget_pilot import WidgetPilot, showing
from textual.strip import Strip

from localspec.conversation.turns import Turn
from localspec.utils.busy_cores import BusyCores
from localspec_tui.figures import RegularUpdates
from localspec_tui.widgets.conversation_view import ConversationView
from localspec_tui.widgets.streaming_markdown import StreamingMarkdown
from localspec_tui.widgets.throttle import Throttle
from localspec_tui.widgets.turn_entry import TurnEntry
from localspec_tui.widgets.virtual_text import VirtualText

PARAGRAPH = "A few words.\n\n"


class Answer:
    """An answer that grows, in a conversation view."""

    def __init__(self, pilot: WidgetPilot, view: ConversationView) -> None:
        self.pilot = pilot
        self.view = view
        self._markdown = view.query(StreamingMarkdown).last()
        self.drawn = DrawnScreen(pilot.app)

    async def grow(self, text: str) -> None:
        """Add text, and wait until the terminal shows the screen."""
        self._markdown.append(text)
        self._markdown.flush()
        await self.pilot.settle()
        await self.pilot.until(lambda: not self.drawn.differences(self.pilot.rows()))


@asynccontextmanager
async def growing_answer() -> AsyncIterator[Answer]:
    """An answer without text."""
    view = ConversationView(TurnEntry)
    async with showing(view, size=(60, 16)) as pilot:
        view.show([Turn("user", "Question?"), Turn("assistant", "")])
        await pilot.settle()
        yield Answer(pilot, view)


@pytest.fixture(autouse=True)
def without_throttle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text is drawn when it is flushed, and at no other time."""
    monkeypatch.setattr(Throttle, "request", lambda _self: None)


@pytest.mark.parametrize("seed", range(4))
def test_the_terminal_shows_the_same_as_if_all_was_drawn_anew(seed: int) -> None:
    async def body() -> None:
        random = Random(seed)
        async with growing_answer() as answer:
            for piece in cut(document(random) + "\n\n" + document(random), random):
                await answer.grow(piece)
            before = answer.pilot.rows()
            for widget in answer.pilot.app.screen.query("*"):
                widget.refresh()
            assert answer.pilot.rows() == before

    asyncio.run(body())


def test_rows_that_stay_are_rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: Counter[int] = Counter()
    real = VirtualText.render_line

    def counted(self: VirtualText[object], y: int) -> Strip:
        if isinstance(self, StreamingMarkdown):
            rendered[y] += 1
        return real(self, y)

    monkeypatch.setattr(VirtualText, "render_line", counted)

    async def body() -> None:
        async with growing_answer() as answer:
            await answer.grow(20 * PARAGRAPH)
            assert answer.view.show_vertical_scrollbar
            rendered.clear()
            for _ in range(5):
                await answer.grow(PARAGRAPH)
            assert [*rendered.values()] == [1] * 10

    asyncio.run(body())


def test_text_and_scrollbar_are_drawn_together() -> None:
    async def body() -> None:
        async with growing_answer() as answer:
            await answer.grow(20 * PARAGRAPH)
            assert answer.view.show_vertical_scrollbar
            before = answer.drawn.updates
            for _ in range(5):
                await answer.grow(PARAGRAPH)
            assert answer.drawn.updates == before + 5

    asyncio.run(body())


@pytest.mark.parametrize(("share", "updates"), [(0.5, 8), (1.0, 2)])
def test_the_status_line_is_updated_less_often_without_idle_cores(
    share: float, updates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[None] = []
    monkeypatch.setattr(BusyCores, "share", lambda _self: share)
    figures = RegularUpdates(lambda: seen.append(None))
    for _ in range(8):
        figures.tick()
    assert len(seen) == updates and figures.is_busy == (share == 1.0)
