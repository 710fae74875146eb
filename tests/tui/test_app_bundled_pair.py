"""The chat with the bundled pair."""

import asyncio
from pathlib import Path

import pytest
from fakes.indexed import indexed
from fakes.pilot import ChatPilot

from localspec import load
from localspec.conversation.session import Session
from localspec.conversation.turns import Conversation
from localspec_tui.app import ChatApp
from localspec_tui.archive import Archive
from localspec_tui.engine_thread import EngineThread
from localspec_tui.launch_options import LaunchOptions

RUNTIME = {"context": 2048, "threads": 1, "reproducible": True}
PROMPT = "How do I list files by size?"


def app_in(folder: Path, **sampling: object) -> ChatApp:
    start = LaunchOptions(runtime=RUNTIME, sampling={"temperature": 0, **sampling})
    return ChatApp(EngineThread(), Archive(folder / "sessions.sqlite3"), start)


async def loaded(chat: ChatPilot) -> None:
    await chat.until(lambda: chat.screen.event_handler.ready)
    await chat.wait_idle()


def test_first_launch_message_comparison_and_origin_view(tmp_path: Path) -> None:
    async def body() -> None:
        app = app_in(tmp_path, max_tokens=24)
        async with app.run_test(size=(100, 40)) as pilot:
            chat = ChatPilot(app, pilot)
            await loaded(chat)
            assert "localspec pull qwen3-8b" in chat.text
            await chat.press("tab", "enter")
            await chat.wait_idle()
            assert chat.contents[0] == PROMPT
            assert chat.contents[1].strip()
            await chat.press("ctrl+b")
            await chat.wait_idle()
            assert "identical: yes" in chat.notes[-1]
            await chat.press("ctrl+t")
            await chat.pilot.pause()
            assert "plain" in chat.text or "suffix" in chat.text

    asyncio.run(body())


@pytest.mark.usefixtures("held_until_stopped")
def test_the_answer_after_a_stop_equals_that_of_a_fresh_engine(tmp_path: Path) -> None:
    said: list[str] = []

    async def body() -> None:
        app = app_in(tmp_path, max_tokens=1900, ignore_eos=True)
        async with app.run_test(size=(100, 40)) as pilot:
            chat = ChatPilot(app, pilot)
            await loaded(chat)
            await chat.send(PROMPT)
            await chat.until(lambda: len(chat.contents) == 2 and chat.contents[1])
            chat.screen.action_stop()
            await chat.wait_idle()
            assert app.engine_thread.session.turns[1].stop_reason == "cancelled"
            app.engine_thread.switch(max_tokens=24)
            await chat.ask("\n\ndef main():")
            said.extend(chat.contents)

    asyncio.run(body())
    archive = Archive(tmp_path / "sessions.sqlite3")
    kept = archive.open(archive.latest() or "").conversation
    archive.close()
    assert [turn.content for turn in kept.turns] == said
    before = Conversation(turn.copy() for turn in kept.turns[:2])
    with load(None, "none", **RUNTIME) as engine:
        session = Session(
            engine, conversation=before, temperature=0, max_tokens=24, ignore_eos=True
        )
        assert session.send("\n\ndef main():").result().content == said[3]


def test_drafts_may_copy_from_texts_that_are_in_no_prompt(tmp_path: Path) -> None:
    text = "def main():\n    return 1\n"

    async def body() -> None:
        start = LaunchOptions(runtime=RUNTIME, copied_texts=(text,))
        app = ChatApp(EngineThread(), Archive(tmp_path / "sessions.sqlite3"), start)
        async with app.run_test(size=(100, 40)) as pilot:
            await loaded(ChatPilot(app, pilot))
            engine = app.engine_thread.session.engine
            [tokens] = indexed(engine.drafter_set.earlier)
            assert engine.detokenize(tokens).strip().startswith("def main():")

    asyncio.run(body())
