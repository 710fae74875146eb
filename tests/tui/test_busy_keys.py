"""Keys while an answer is written, and an answer that goes on after it was stopped."""

import asyncio
from pathlib import Path

import pytest
from fakes.pilot import ChatPilot, running_chat
from fakes.scripted import Script

from localspec_tui.screens.settings import SettingsScreen

LONG = "one two three four five six seven eight nine ten " * 40


async def write_some(chat: ChatPilot, letters: int = 20) -> None:
    """Ask, and wait until the answer has some letters."""
    await chat.send("count")
    await chat.until(lambda: len(chat.contents) == 2 and len(chat.contents[1]) > letters)


def shown_reasons(chat: ChatPilot) -> list[str | None]:
    return [turn.stop_reason for turn in chat.screen.conversation.turns if turn.role != "user"]


@pytest.mark.parametrize("key", ["ctrl+r", "ctrl+b", "ctrl+n"])
def test_a_key_out_of_habit_does_not_end_the_answer(tmp_path: Path, key: str) -> None:
    async def body() -> None:
        script = Script([LONG], rate=100)
        async with running_chat(script, tmp_path) as chat:
            await write_some(chat)
            await chat.press(key)
            [note] = chat.app._notifications
            assert note.message == "Esc stops the answer first"
            script.rate = 0
            await chat.wait_idle()
            assert chat.contents == ["count", LONG]
            assert shown_reasons(chat) == ["eos"]

    asyncio.run(body())


def test_a_chat_that_is_cleared_on_purpose_ends_the_answer(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script([LONG], rate=100), tmp_path) as chat:
            await write_some(chat)
            await chat.send("/clear")
            await chat.until(lambda: not chat.screen.conversation.turns)

    asyncio.run(body())


def test_settings_that_are_looked_at_change_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script([LONG], rate=100)
        async with running_chat(script, tmp_path) as chat:
            await write_some(chat)
            before = chat.app.engine_thread._commands._put
            await chat.press("ctrl+s")
            await chat.until(lambda: isinstance(chat.app.screen, SettingsScreen))
            await chat.press("enter")
            await chat.until(lambda: chat.app.screen is chat.screen)
            assert chat.app.engine_thread._commands._put == before
            script.rate = 0
            await chat.wait_idle()
            assert chat.contents == ["count", LONG]

    asyncio.run(body())


def test_sampling_and_a_system_prompt_count_from_the_next_answer_on(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script([LONG, "The end."], rate=100)
        async with running_chat(script, tmp_path) as chat:
            await write_some(chat)
            await chat.press("ctrl+s")
            await chat.until(lambda: isinstance(chat.app.screen, SettingsScreen))
            chat.app.screen.query_one("#temperature").value = "0.25"  # type: ignore[attr-defined]
            await chat.press("ctrl+s")
            await chat.until(lambda: chat.app.screen is chat.screen)
            chat.app.settings.change_system("Be brief.")
            script.rate = 0
            await chat.wait_idle()
            assert chat.contents == ["count", LONG]
            await chat.ask("and now")
            slot = script.engines[-1].slots.own
            assert [each.sampling.get("temperature") for each in slot.started] == [None, 0.25]
            session = chat.app.engine_thread.session
            assert session and session.written.text.startswith("<system>Be brief.")

    asyncio.run(body())


def test_a_stopped_answer_goes_on(tmp_path: Path) -> None:
    """Its text, its origins, and what is kept of it on disk."""

    async def body() -> None:
        script = Script([LONG, "and the rest of it.", "Another."], rate=200)
        async with running_chat(script, tmp_path) as chat:
            assert "ctrl+g" not in chat.screen.active_bindings
            await write_some(chat)
            await chat.press("escape")
            await chat.wait_idle()
            partial, [_, turn] = chat.contents[1], chat.screen.conversation.turns
            assert "stopped" in chat.text
            assert "ctrl+g" in chat.screen.active_bindings
            script.rate = 0
            await chat.press("ctrl+g")
            await chat.wait_idle()
            assert chat.screen.conversation.turns[1] is turn
            assert chat.contents == ["count", f"{partial}and the rest of it."]
            assert shown_reasons(chat) == ["eos"]
            # Where the text was stopped says where its lines are wrapped.
            await chat.until(lambda: "the rest of it." in " ".join(chat.text.split()))
            assert "stopped" not in chat.text
            assert "ctrl+g" not in chat.screen.active_bindings
            origins = "".join(text for text, _ in chat.app.autosave.origins[turn.key].segments)
            assert origins == turn.content
            assert chat.screen.view.turn_views[-1].turn is turn
            slot = script.engines[-1].slots.own
            assert slot.started[1].seed == slot.started[0].seed == turn.seed
            [summary] = chat.app.archive.list()
            kept = chat.app.archive.open(summary.key)
            [_, saved] = kept.conversation.turns
            assert (saved.content, saved.seed) == (turn.content, turn.seed)
            assert "".join(text for text, _ in kept.origins[turn.key]) == turn.content
            await chat.press("ctrl+b")
            await chat.wait_idle()
            assert "written in one go" in chat.text

    asyncio.run(body())


@pytest.mark.parametrize("key", ["ctrl+g", "ctrl+r"])
def test_a_key_says_why_it_does_nothing(tmp_path: Path, key: str) -> None:
    async def body() -> None:
        async with running_chat(Script([LONG], rate=100), tmp_path) as chat:
            await chat.press(key)
            [note] = chat.app._notifications
            assert note.message == "there is no message yet"
            await write_some(chat)
            await chat.press(key)
            assert [*chat.app._notifications][-1].message == "Esc stops the answer first"

    asyncio.run(body())


def test_what_cannot_go_on_is_one_line(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.send("/continue")
            await chat.wait_idle()
            assert "there is no message yet" in chat.text
            await chat.ask("hi")
            await chat.send("/continue")
            await chat.wait_idle()
            assert "the last answer is complete" in chat.text
            chat.screen.view.clear()
            await chat.press("ctrl+g")
            await chat.wait_idle()
            assert any("the last answer is complete" in note for note in chat.notes)
            assert chat.contents == ["hi", "Hello, I am a script."]

    asyncio.run(body())
