"""The tokens of the text in the box, and what they leave of the context."""

import asyncio
import threading
from pathlib import Path

import pytest
from fakes.event_recorder import TIMEOUT, EventRecorder
from fakes.pilot import ChatPilot, running_chat
from fakes.projectors import picture
from fakes.scripted import Script, ScriptedModel

from localspec.conversation.events import Gauge
from localspec_tui.attachments import Attachments
from localspec_tui.message_size import SHORTEST, Counted, size_text

LONG = "word " * 40  # 50 tokens of a scripted model


def label(chat: ChatPilot) -> str:
    return str(chat.screen.composer.border_subtitle)


@pytest.mark.parametrize(
    ("counted", "gauge", "text"),
    [
        (Counted(1234, False), Gauge(1000, 8192), "1,234 tokens, leaves about 5,958 of 8,192"),
        (Counted(1234, True), None, "1,234 tokens + files"),
        (Counted(790, False), Gauge(7500, 8192), "790 tokens, more than the 692 left of 8,192"),
        (Counted(9000, False), Gauge(0, 8192), "9,000 tokens, more than the context of 8,192"),
        (Counted(60, False), Gauge(0, 0), "60 tokens"),
    ],
)
def test_what_is_said(counted: Counted, gauge: Gauge | None, text: str) -> None:
    assert size_text(counted, gauge) == text


def test_the_tokens_of_a_longer_text_are_shown(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path, size=(100, 24)) as chat:
            assert label(chat) == "scripted"
            chat.screen.composer.set_text(LONG)
            await chat.until(lambda: "tokens" in label(chat))
            assert label(chat) == "50 tokens, leaves about 8,142 of 8,192 · scripted"
            chat.screen.composer.set_text("a" * (SHORTEST - 1))
            await chat.until(lambda: label(chat) == "scripted")
            # Of a text that is sent, of a command and of a short text nothing is said.
            for text in ("/system " + LONG, "short"):
                chat.screen.composer.set_text(text)
                await chat.pilot.pause(0.5)
                assert label(chat) == "scripted"
            await chat.ask(LONG)
            assert label(chat) == "scripted"
            assert chat.app.engine_thread.session
            used = chat.app.engine_thread.session.gauge.used
            chat.screen.composer.set_text(LONG)
            await chat.until(lambda: f"leaves about {8192 - used - 50:,} of 8,192" in label(chat))
            # What an edited message leaves depends on where it is.
            await chat.press("shift+tab", "up", "e")
            await chat.until(lambda: label(chat) == "50 tokens · scripted")

    asyncio.run(body())


def test_a_conversation_that_goes_on_has_no_gauge_yet(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("one")
        async with running_chat(Script(), tmp_path, latest=True) as chat:
            chat.screen.composer.set_text(LONG)
            await chat.until(lambda: label(chat) == "50 tokens · scripted")

    asyncio.run(body())


def test_in_a_narrow_box_it_is_without_the_model(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path, size=(52, 24)) as chat:
            chat.screen.composer.set_text(LONG)
            await chat.until(lambda: label(chat) == "50 tokens, leaves about 8,142 of 8,192")

    asyncio.run(body())


def test_attached_files_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("word " * 400)
    (tmp_path / "data.bin").write_bytes(b"\0" * 9)
    (tmp_path / f"{'cat' * 50}.png").write_bytes(picture())

    async def body() -> None:
        async with running_chat(Script(), tmp_path, size=(100, 24)) as chat:
            chat.screen.composer.set_text(f"@notes.txt {LONG}")
            message = Attachments().attach(f"@notes.txt {LONG}")
            count = -(-len(message) // 4)
            await chat.until(lambda: label(chat).startswith(f"{count} tokens, "))
            assert count > 550
            chat.screen.composer.set_text(f"@data.bin {LONG}")
            await chat.until(lambda: label(chat).startswith("53 tokens + files, "))
            # The model reads no name of an image.
            chat.screen.composer.set_text(f"@{'cat' * 50}.png {LONG}")
            count = -(-len(LONG) // 4)
            await chat.until(lambda: label(chat).startswith(f"{count} tokens + files, "))

    asyncio.run(body())


def test_keys_do_not_wait_for_the_count_and_the_last_text_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, go_on = list[int](), threading.Event()

    def held(model: ScriptedModel, text: str) -> int:
        counted.append(len(text))
        assert go_on.wait(TIMEOUT)
        return len(text)

    monkeypatch.setattr(ScriptedModel, "count_tokens", held)

    async def body() -> None:
        async with running_chat(Script(), tmp_path, size=(100, 24)) as chat:
            chat.screen.composer.set_text("x" * 100_000)
            await chat.until(lambda: counted == [100_000])
            # None of these keys is counted by itself.
            await chat.press(*"more")
            assert chat.screen.composer.text.endswith("xmore")
            assert counted == [100_000]
            go_on.set()
            await chat.until(lambda: "100,004 tokens" in label(chat))
            assert counted == [100_000, 100_004]

    asyncio.run(body())


def test_it_is_right_while_an_answer_is_written(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(["many words " * 200], rate=100)
        async with running_chat(script, tmp_path, size=(100, 24)) as chat:
            await chat.send("go")
            await chat.until(lambda: chat.screen.event_handler.state == "answering")
            chat.screen.composer.set_text(LONG)
            await chat.until(lambda: "50 tokens, leaves" in label(chat))
            before = label(chat)
            await chat.until(lambda: label(chat) != before)
            assert chat.app.engine_thread.busy
            assert label(chat).startswith("50 tokens, leaves about ")
            await chat.press("escape")
            await chat.wait_idle()
            assert chat.app.engine_thread.session
            left = 8192 - 50 - chat.app.engine_thread.session.gauge.used
            assert f"leaves about {left:,} of" in label(chat)

    asyncio.run(body())


def test_tokens_are_counted_while_the_engine_is_locked(bundled_pair: EventRecorder) -> None:
    session = bundled_pair.engine_thread.session
    assert session
    expected = session.engine.tokenize("tar -xzf archive.tar.gz", add_special=False)
    with session.engine.slots.lock:
        found = []
        count = threading.Thread(
            target=lambda: found.append(
                bundled_pair.engine_thread.count_tokens("tar -xzf archive.tar.gz")
            )
        )
        count.start()
        count.join(TIMEOUT)
        assert found == [len(expected)]
    assert bundled_pair.engine_thread.count_tokens("\ud800") is None


def test_without_a_model_nothing_is_counted(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(fails={"load": OSError("no such model")})
        async with running_chat(script, tmp_path, loaded=False) as chat:
            assert chat.app.engine_thread.count_tokens("a") is None

    asyncio.run(body())
