"""Messages that wait for the answer before them: order, changes, a full context, and the end."""

import asyncio
import os
import signal
from pathlib import Path
from threading import Event
from time import sleep

import pytest
from fakes.chat_terminal import CTRL_Q, ChatTerminal
from fakes.pilot import TIMEOUT, ChatPilot, running_chat
from fakes.scripted import Script, ScriptedModel

from localspec.conversation.events import Notice
from localspec_tui.engine_thread import EngineThread
from localspec_tui.notes import last_words
from localspec_tui.screens.choice_dialog import ChoiceDialog

LONG = "one two three four five six seven eight nine ten " * 10
terminal = pytest.mark.skipif(os.name == "nt", reason="there is no pty")


async def ask_and_queue(
    chat: ChatPilot, script: Script, *messages: str, go_on: bool = True
) -> None:
    """Send a message, and others while it is answered. go_on: whether the answer ends soon."""
    script.rate = 20
    await chat.send("count")
    await chat.until(lambda: len(chat.contents) == 2)
    for message in messages:
        await chat.send(message)
    await chat.until(lambda: list(chat.screen.outbox.queued) == [*messages])
    script.rate = 0 if go_on else 20


def test_messages_are_sent_in_order_when_the_answer_has_ended(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script([LONG, "a", "b"])
        async with running_chat(script, tmp_path) as chat:
            await ask_and_queue(chat, script, "second", "third\nin two lines", go_on=False)
            assert "2 messages queued (Up edits the last, Esc drops all)" in chat.text
            assert "third in two lines" in chat.text
            script.rate = 0
            await chat.wait_idle()
            assert chat.contents == ["count", LONG, "second", "a", "third\nin two lines", "b"]
            assert "queued" not in chat.text

    asyncio.run(body())


def test_the_footer_is_right_after_an_answer_between_two_polls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("hi")
            for timer in chat.screen._timers:
                timer.pause()
            with monkeypatch.context() as during_the_answer:
                during_the_answer.setattr(EngineThread, "busy", True)
                chat.screen.outbox.drop()
                await chat.until(lambda: "esc Stop" in chat.text)
            chat.app.engine_thread._events.append(Notice("the end"))
            chat.screen.event_handler.poll()
            await chat.until(lambda: "esc Stop" not in chat.text)

    asyncio.run(body())


def test_up_takes_the_last_message_back_to_be_edited(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script([LONG, "a", "b"])
        async with running_chat(script, tmp_path) as chat:
            await ask_and_queue(chat, script, "second", "thrid", go_on=False)
            await chat.press("up")
            assert chat.screen.composer.text == "thrid"
            await chat.press(*["backspace"] * 3, *"ird", "enter")
            script.rate = 0
            await chat.wait_idle()
            assert chat.contents[2::2] == ["second", "third"]

    asyncio.run(body())


def test_escape_drops_the_queue_and_then_stops_the_answer(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script([LONG * 10])
        async with running_chat(script, tmp_path) as chat:
            await ask_and_queue(chat, script, "second", "third", go_on=False)
            await chat.press("escape")
            assert not chat.screen.outbox.queued
            assert chat.app.engine_thread.busy
            await chat.until(lambda: "2 queued messages dropped" in chat.text)
            await chat.press("escape")
            await chat.wait_idle()
            assert len(chat.contents) == 2
            assert "stopped" in chat.text

    asyncio.run(body())


def test_what_is_refused_again_is_said_once(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(context=100), tmp_path) as chat:
            await chat.send("word " * 200)
            for _ in range(3):
                await chat.wait_idle()
                await chat.press("enter")
            await chat.wait_idle()
            assert sum("system prompt and template included" in each for each in chat.notes) == 1

    asyncio.run(body())


def test_a_long_message_shows_at_once_that_it_is_on_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, tokenize = Event(), ScriptedModel.tokenize

    def slow(model: ScriptedModel, text: str) -> list[int]:
        assert go_on.wait(TIMEOUT)
        return tokenize(model, text)

    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            monkeypatch.setattr(ScriptedModel, "tokenize", slow)
            await chat.send("word " * 2001)
            await chat.until(lambda: "dividing the message into tokens" in chat.text)
            go_on.set()
            await chat.wait_idle()
            assert "dividing" not in chat.text and len(chat.contents) == 2

    asyncio.run(body())


def test_after_a_stop_the_queue_waits_for_enter(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script([LONG * 10, "a"])
        async with running_chat(script, tmp_path, size=(120, 24)) as chat:
            await ask_and_queue(chat, script, "second", go_on=False)
            await chat.press("ctrl+c")
            await chat.wait_idle()
            assert "1 message not sent, because the answer was stopped (Enter sends" in chat.text
            script.rate = 0
            assert len(chat.contents) == 2
            await chat.press("enter")
            await chat.wait_idle()
            assert chat.contents[2:] == ["second", "a"]

    asyncio.run(body())


@pytest.mark.parametrize(("keys", "answered"), [(("enter",), False), (("down", "enter"), True)])
def test_the_queue_waits_while_the_context_is_full(
    tmp_path: Path, keys: tuple[str, ...], answered: bool
) -> None:
    async def body() -> None:
        script = Script([LONG, "a", "b", "c"], context=100)
        async with running_chat(script, tmp_path, size=(120, 24)) as chat:
            await ask_and_queue(chat, script, "second", "third")
            await chat.until(lambda: chat.is_on_top(ChoiceDialog))
            assert chat.screen.outbox.held == "because the context is full"
            await chat.press(*keys)
            await chat.wait_idle()
            if answered:
                await chat.until(lambda: not chat.screen.outbox.queued)
                await chat.wait_idle()
                assert chat.contents[-4::2] == ["second", "third"]
            else:
                assert list(chat.screen.outbox.queued) == ["second", "third"]
                assert "2 messages not sent, because the context is full" in chat.text

    asyncio.run(body())


def test_a_refused_message_of_the_queue_stays_the_first(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script([LONG, "a", "b"])
        async with running_chat(script, tmp_path, size=(120, 24)) as chat:
            await ask_and_queue(chat, script, "second", "third", go_on=False)
            script.fails["send"] = ValueError("no more")
            script.rate = 0
            await chat.wait_idle()
            assert list(chat.screen.outbox.queued) == ["second", "third"]
            assert "2 messages not sent, because the first was refused" in chat.text
            script.fails.clear()
            await chat.press("enter")
            await chat.wait_idle()
            assert chat.contents[2:] == ["second", "a", "third", "b"]

    asyncio.run(body())


def test_a_new_chat_does_not_get_the_queue_of_the_one_before(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script([LONG, "a"])
        async with running_chat(script, tmp_path) as chat:
            await ask_and_queue(chat, script, "second", go_on=False)
            await chat.send("/clear")
            script.rate = 0
            await chat.wait_idle()
            assert chat.contents == []
            assert list(chat.screen.outbox.queued) == ["second"]
            await chat.send("")
            await chat.wait_idle()
            assert chat.contents == ["second", "a"]

    asyncio.run(body())


def test_last_words() -> None:
    assert list(last_words([], None)) == []
    assert list(last_words(["a\nb\x1b"], "0123456789ab")) == [
        "1 message was not sent:",
        "  a\n  b?",
        "continue with: localspec chat --resume 01234567",
    ]


@terminal
def test_the_end_says_how_to_go_on_and_what_was_not_sent(tmp_path: Path, home: Path) -> None:
    with ChatTerminal(tmp_path, answers=[LONG * 10], rate=50) as chat:
        chat.type("count\r")
        chat.wait_for_messages(["count"])
        chat.type("second, in full\r")
        chat.wait_for(lambda: b"queued" in chat.shown)
        chat.type(CTRL_Q)
        assert chat.wait_ended() == 0
        shown = chat.shown.decode()
        assert "1 message was not sent:\r\n  second, in full\r\ncontinue with: localspec" in shown
        assert "localspec chat --resume " in shown.splitlines()[-1]


@terminal
def test_a_message_that_was_just_sent_is_not_lost_by_quitting(tmp_path: Path, home: Path) -> None:
    with ChatTerminal(tmp_path) as chat:
        chat.type(b"kept\r" + CTRL_Q)
        assert chat.wait_ended() == 0
        assert chat.messages == ["kept"] or "not sent:\r\n  kept" in chat.shown.decode()


@terminal
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_an_empty_chat_ends_without_a_word(tmp_path: Path, home: Path, name: str) -> None:
    with ChatTerminal(tmp_path) as chat:
        chat.process.send_signal(getattr(signal, name))
        assert chat.wait_ended() == 0
        assert "--resume" not in chat.shown.decode()


def test_a_long_queue_is_shown_in_a_small_terminal(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(["a"], rate=200)
        async with running_chat(script, tmp_path, size=(40, 12)) as chat:
            chat.screen.outbox.queued.extend(["first " * 20, "second", "third", "fourth"])
            chat.screen.outbox.hold("because the context is full")
            await chat.until(lambda: "4 messages not sent, because the" in chat.text)
            assert "Esc drops all)" in chat.text
            assert "first first" in chat.text
            assert "Write a message" in chat.text
            chat.screen.outbox.release()
            await chat.wait_idle()
            assert chat.contents[::2] == ["first " * 20, "second", "third", "fourth"]

    asyncio.run(body())


def test_a_message_with_two_slashes_is_never_a_command(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script([LONG, "a", "b"])
        async with running_chat(script, tmp_path) as chat:
            await ask_and_queue(chat, script, "//quit smoking, how?", go_on=False)
            await chat.press("up", "enter")
            script.rate = 0
            await chat.wait_idle()
            assert chat.contents[2:] == ["/quit smoking, how?", "a"]
            await chat.press("ctrl+up", "up", "e")
            await chat.until(lambda: chat.screen.composer.text == "//quit smoking, how?")
            await chat.press("enter")
            await chat.wait_idle()
            assert chat.contents[2:] == ["/quit smoking, how?", "b"]
        async with running_chat(script, tmp_path) as chat:
            await chat.press("up")
            assert chat.screen.composer.text == "//quit smoking, how?"

    asyncio.run(body())


def test_a_refused_message_with_two_slashes_keeps_them(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(["a"], fails={"send": ValueError("no more")})
        async with running_chat(script, tmp_path) as chat:
            await chat.ask("//quit smoking, how?")
            assert chat.screen.composer.text == "//quit smoking, how?"
            script.fails.clear()
            await chat.press("enter")
            await chat.wait_idle()
            assert chat.contents == ["/quit smoking, how?", "a"]

    asyncio.run(body())


def test_a_message_sent_right_after_a_refusal_does_not_replace_the_refused_one(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        script = Script(["a", "b"], fails={"send": ValueError("no more")})
        async with running_chat(script, tmp_path) as chat:
            chat.screen.outbox.send("first")
            # The screen does not see the refusal meanwhile.
            while chat.app.engine_thread.busy:
                sleep(0.001)
            script.fails.clear()
            chat.screen.outbox.send("second")
            await chat.wait_idle()
            assert chat.screen.outbox.unsent == ["first", "second"]
            assert "2 messages not sent, because the first was refused" in chat.text
            await chat.press("enter")
            await chat.wait_idle()
            assert chat.contents == ["first", "a", "second", "b"]

    asyncio.run(body())


def test_a_refused_edit_begins_again(tmp_path: Path) -> None:
    binary = tmp_path / "picture"
    binary.write_bytes(b"\0")

    async def body() -> None:
        script = Script(["red", "blue"])
        async with running_chat(script, tmp_path) as chat:
            await chat.ask("a colour")
            chat.screen.composer.load_text("half a thought")
            await chat.press("ctrl+up", "up", "e")
            await chat.ask(f"a colour as in @{binary}")
            assert "picture is no text, JPEG, PNG, GIF, BMP, WAV" in " ".join(chat.notes)
            assert chat.screen.composer.text == f"a colour as in @{binary}"
            assert "Edit your question" in chat.text
            script.fails["send"] = ValueError("no more")
            await chat.ask("a dark colour")
            assert chat.screen.composer.text == "a dark colour"
            script.fails.clear()
            await chat.press("enter")
            await chat.wait_idle()
            assert chat.contents == ["a dark colour", "blue"]
            assert chat.screen.composer.text == "half a thought"

    asyncio.run(body())


def test_an_edit_right_after_a_refusal_does_not_replace_the_refused_message(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(["a", "b"])
        async with running_chat(script, tmp_path) as chat:
            await chat.ask("question")
            script.fails["send"] = ValueError("no more")
            chat.screen.outbox.send("refused")
            while chat.app.engine_thread.busy:
                sleep(0.001)
            chat.screen.outbox.edit(chat.screen.conversation.turns[0], "edited")
            await chat.wait_idle()
            assert chat.screen.outbox.unsent == ["refused"]
            assert chat.screen.composer.text == "edited"

    asyncio.run(body())
