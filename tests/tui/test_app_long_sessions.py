"""Long sessions: only turns near the visible rows are mounted."""

import asyncio
import gc
from itertools import pairwise
from pathlib import Path
from weakref import ref

import pytest
from fakes.pilot import ChatPilot, running_chat
from fakes.scripted import Script
from textual.events import MouseEvent, MouseMove, MouseUp
from textual.scrollbar import ScrollTo

from localspec.conversation.turns import Conversation, Turn
from localspec_tui.archive import Archive
from localspec_tui.screens.sessions import SessionsScreen
from localspec_tui.widgets.streaming_markdown import StreamingMarkdown

MESSAGES = 500


def save_long_session(folder: Path, messages: int = MESSAGES) -> None:
    """Save a session of so many turns in the archive of a chat."""
    conversation = Conversation()
    for number in range(messages):
        role = "assistant" if number % 2 else "user"
        text = f"entry {number}\n\n" + "some words that fill a line or two of it. " * 5
        conversation.add(Turn(role, text, stop_reason="eos" if number % 2 else None))
    archive = Archive(folder / "sessions.sqlite3")
    key = archive.create("scripted", None)
    archive.save(key, conversation.turns, conversation.last)
    archive.close()


def visible(chat: ChatPilot) -> list[int]:
    """The numbers of the turns whose first row is on the screen."""
    words = chat.text.split()
    return [int(b) for a, b in pairwise(words) if a == "entry"]


async def first_after_scroll(chat: ChatPilot, first: int) -> int:
    """The first visible turn, once it is not `first` any more and the screen has settled."""
    await chat.until(lambda: visible(chat)[:1] not in ([], [first]))
    await chat.settle()
    return visible(chat)[0]


@pytest.mark.slow
def test_a_long_session_opens_at_its_end_and_scrolls_back(tmp_path: Path) -> None:
    save_long_session(tmp_path)

    async def body() -> None:
        async with running_chat(Script(context=200_000), tmp_path, latest=True) as chat:
            view = chat.screen.view
            await chat.until(lambda: visible(chat)[-1:] == [MESSAGES - 1])
            await chat.settle()
            assert len(view.turn_views) < 30
            before = visible(chat)[0]
            while before > 440:
                view.scroll_page_up(animate=False)
                first = await first_after_scroll(chat, before)
                # Mounting older turns does not move the visible rows.
                assert before - 6 <= first < before
                before = first
            assert len(view.turn_views) < 120
            await chat.press("ctrl+end")
            await chat.until(lambda: visible(chat)[-1:] == [MESSAGES - 1])
            await chat.ask("and now?")
            assert "Hello, I am a script." in chat.text

    asyncio.run(body())


def test_old_turns_are_unmounted_while_the_view_follows_the_end(tmp_path: Path) -> None:
    async def body() -> None:
        rows = "\n\n".join(f"line {number}" for number in range(300))
        async with running_chat(Script([rows]), tmp_path) as chat:
            for number in range(6):
                await chat.ask(f"entry {number}")
            await chat.wait_idle()
            assert chat.screen.view.virtual_size.height < 2500
            assert "line 299" in chat.text
            assert len(chat.screen.view.turn_views) < 12

    asyncio.run(body())


def test_a_view_that_is_scrolled_up_stays_while_an_answer_grows(tmp_path: Path) -> None:
    save_long_session(tmp_path, 40)

    async def body() -> None:
        script = Script(["line\n\n" * 200])
        async with running_chat(script, tmp_path, latest=True) as chat:
            script.rate = 100
            await chat.send("more")
            await chat.until(lambda: len(chat.contents) == 42)

            def is_there() -> bool:
                # The end that was followed until now may still be on its way.
                chat.screen.view.scroll_to(y=20, animate=False)
                return chat.screen.view.scroll_y == 20

            await chat.until(is_there)
            await chat.pilot.pause()
            looked_at = visible(chat)
            length = len(chat.contents[-1])
            await chat.until(lambda: len(chat.contents[-1]) > length + 100)
            assert visible(chat) == looked_at
            await chat.press("escape")
            await chat.wait_idle()
            assert visible(chat) == looked_at
            chat.screen.view.follow_end()
            await chat.until(lambda: "stopped" in chat.text)

    asyncio.run(body())


@pytest.mark.slow
def test_only_what_is_near_is_mounted_and_an_answer_grows_unseen(tmp_path: Path) -> None:
    save_long_session(tmp_path)

    async def body() -> None:
        script = Script(["<think>so</think>line\n\n" * 40 + "The end."], context=200_000)
        async with running_chat(script, tmp_path, latest=True) as chat:
            view = chat.screen.view
            script.rate = 60
            await chat.send("more")
            await chat.until(lambda: len(chat.contents) == MESSAGES + 2)
            await chat.press("ctrl+home")
            await chat.until(lambda: visible(chat)[:1] == [0])
            assert len(view.turn_views) < 30
            # The end of what is mounted is not the end of the conversation.
            for last in (20, 40):
                while visible(chat)[-1] < last:
                    await chat.press("pagedown")
                    await chat.pilot.pause()
            assert len(view.turn_views) < 120
            view.scroll_to(y=view.max_scroll_y, animate=False)
            await chat.settle()
            looked_at = visible(chat)
            assert looked_at[-1] < MESSAGES - 1
            script.rate = 0
            await chat.wait_idle()
            assert visible(chat) == looked_at
            assert all(each.turn is not chat.screen.conversation.last for each in view.turn_views)
            # What was written meanwhile is known without a view.
            entry = view.last_turn
            assert entry and entry.origins.drafted > 0 and entry.thought.seconds is not None
            assert "".join(text for text, _ in entry.origins.segments) == entry.turn.content
            # A message that is far away can have the focus, and loses it when it is unmounted.
            view.action_move_focus(-1)
            await chat.until(lambda: view.focused_turn is entry)
            await chat.press("ctrl+home")
            await chat.until(lambda: chat.screen.composer.has_focus and visible(chat)[:1] == [0])
            view.follow_end()
            await chat.until(lambda: "The end." in chat.text)

    asyncio.run(body())


@pytest.mark.slow
def test_the_scrollbar_is_that_of_all_messages(tmp_path: Path) -> None:
    save_long_session(tmp_path)

    async def body() -> None:
        async with running_chat(Script(context=200_000), tmp_path, latest=True) as chat:
            view = chat.screen.view
            await chat.until(lambda: visible(chat)[-1:] == [MESSAGES - 1])
            bar = view.vertical_scrollbar
            await chat.until(lambda: 5 * MESSAGES < bar.window_virtual_size < 12 * MESSAGES)
            rows = bar.window_virtual_size
            assert len(view.turn_views) < 30
            assert bar.position == rows - view.size.height
            # Whatever asks for a region while the map of the screen is out of date leaves it there.
            chat.screen._compositor._full_map_invalidated = True
            assert view.region and bar.position == rows - view.size.height
            # What it is dragged to is mounted.
            for part in (0.5, 0.0, 0.25):
                bar.post_message(ScrollTo(y=part * rows))

                def is_there(part: float = part) -> bool:
                    first = visible(chat)[:1] or [MESSAGES]
                    is_near = abs(first[0] - part * MESSAGES) <= 10
                    return is_near and abs(bar.position - part * rows) < 0.02 * rows

                await chat.until(is_there)
                assert len(view.turn_views) < 120
            bar.post_message(ScrollTo(y=rows))
            await chat.until(lambda: visible(chat)[-1:] == [MESSAGES - 1])
            await chat.until(lambda: bar.position == bar.window_virtual_size - view.size.height)
            # A layout that changes nothing leaves it there.
            layouts: list[object] = []
            signal = chat.screen.screen_layout_refresh_signal
            signal.subscribe(chat.screen.composer, layouts.append)
            view.refresh(layout=True)
            await chat.until(lambda: layouts)
            await chat.until(lambda: bar.position == bar.window_virtual_size - view.size.height)

    asyncio.run(body())


@pytest.mark.slow
def test_a_selection_stays_where_its_messages_are_unmounted(tmp_path: Path) -> None:
    save_long_session(tmp_path)

    async def body() -> None:
        async with running_chat(Script(context=200_000), tmp_path, latest=True) as chat:
            view, screen = chat.screen.view, chat.screen

            def point_at(row: int, step: int, kind: type[MouseEvent] = MouseMove) -> None:
                screen._forward_event(kind(None, 20, row, 0, step, 1, False, False, False, 20, row))

            await chat.until(lambda: visible(chat)[-1:] == [MESSAGES - 1])
            # From the middle of a line up, and on at the upper edge.
            rows = chat.text.split("\n")
            start = max(row for row, text in enumerate(rows) if "some words that" in text)
            await chat.pilot.mouse_down(offset=(20, start))
            point_at(start - 1, -1)
            while view._first > MESSAGES - 150:
                point_at(1, -1)
                await chat.pilot.pause(0.02)
            point_at(10, 1)  # which is no edge: no more scrolling
            selected = screen.get_selected_text()
            assert selected and all(
                f"entry {number}\n" in selected for number in range(MESSAGES - 130, MESSAGES - 1)
            )
            point_at(10, 0, MouseUp)
            await chat.until(lambda: view.turn_entries[-1].view is None)
            assert screen.get_selected_text() == selected
            await chat.press("ctrl+end")
            await chat.until(lambda: visible(chat)[-1:] == [MESSAGES - 1])
            shown = view.turn_entries[-1].view
            assert shown
            await chat.until(lambda: screen.selections.keys() & {*shown.walk_children()})
            assert screen.get_selected_text() == selected
            # A message that is not selected changes nothing of it.
            view.note("a note")
            await chat.until(lambda: "a note" in chat.text)
            assert screen.get_selected_text() == selected
            view.clear()
            await chat.until(lambda: not screen.get_selected_text())

    asyncio.run(body())


def test_notes_stay_between_the_turns(tmp_path: Path) -> None:
    save_long_session(tmp_path, 40)

    async def body() -> None:
        async with running_chat(Script(), tmp_path, latest=True) as chat:
            chat.screen.view.note("a note")
            await chat.ask("more")
            for key in ("ctrl+home", "ctrl+end"):
                await chat.press(key)
                await chat.until(lambda key=key: (visible(chat)[:1] == [0]) == (key == "ctrl+home"))
            await chat.until(lambda: "a note" in chat.text and chat.notes.count("a note") == 1)

    asyncio.run(body())


def test_why_a_command_is_refused_is_seen_by_who_has_scrolled_up(tmp_path: Path) -> None:
    save_long_session(tmp_path, 30)

    async def body() -> None:
        async with running_chat(Script(), tmp_path, latest=True) as chat:
            await chat.until(lambda: visible(chat)[-1:] == [29])
            await chat.press("ctrl+home")
            await chat.until(lambda: visible(chat)[:1] == [0])
            await chat.send("/nonsense")
            await chat.until(lambda: "there is no command /nonsense" in chat.text)

    asyncio.run(body())


@pytest.mark.slow
def test_a_hit_of_the_search_opens_at_its_turn(tmp_path: Path) -> None:
    save_long_session(tmp_path)

    async def body() -> None:
        async with running_chat(Script(context=200_000), tmp_path) as chat:
            for number in (450, 310):  # the second time, in the conversation that is open
                await chat.press("ctrl+o")
                await chat.until(lambda: chat.is_on_top(SessionsScreen))
                await chat.press(*f"entry {number}")
                await chat.until(lambda number=number: f"entry {number}" in chat.text)
                await chat.press("enter")
                await chat.until(lambda number=number: visible(chat)[:1] == [number])
            await chat.press("pageup")
            await first_after_scroll(chat, 310)
            await chat.press("ctrl+home")
            await chat.until(lambda: visible(chat)[:1] == [0])
            await chat.press("ctrl+end")
            await chat.until(lambda: visible(chat)[-1:] == [MESSAGES - 1])

    asyncio.run(body())


@pytest.mark.slow
def test_the_arrow_keys_reach_turns_that_were_not_mounted(tmp_path: Path) -> None:
    save_long_session(tmp_path, 60)

    async def body() -> None:
        async with running_chat(Script(), tmp_path, latest=True) as chat:
            for number in reversed(range(60)):
                await chat.press("up" if number < 59 else "shift+tab")
                await chat.until(
                    lambda number=number: (
                        chat.screen.view.focused_turn_view
                        and chat.screen.view.focused_turn_view.turn.content.startswith(
                            f"entry {number}\n"
                        )
                    )
                )
            await chat.press("up", *["down"] * 3)
            assert chat.screen.view.focused_turn_view.turn.content.startswith("entry 3\n")

    asyncio.run(body())


def test_the_answers_of_a_chat_that_was_left_are_freed(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(["**bold**"]), tmp_path) as chat:
            for _ in range(3):
                await chat.ask("hi")
            answers = [ref(each) for each in chat.screen.view.query(StreamingMarkdown)]
            await chat.press("ctrl+n")
            await chat.wait_idle()
            # Textual keeps its last few layouts.
            for _ in range(3):
                await chat.ask("hi")
            gc.collect()
            assert len(answers) == 3 and not any(each() for each in answers)

    asyncio.run(body())


def test_the_end_is_followed_where_the_layout_scrolled_above_the_first_row(tmp_path: Path) -> None:
    """As Textual's does for a moment where what just fitted no longer does."""

    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            view = chat.screen.view
            view.note("first\n" * 30)
            await chat.until(lambda: view.scroll_y == view.max_scroll_y > 0)
            view.set_reactive(type(view).scroll_y, -1.0)
            view.scroll_y = 0
            view.note("last")
            async with asyncio.timeout(15):
                while view.scroll_y != view.max_scroll_y:
                    await chat.pilot.pause(0.05)

    asyncio.run(body())
