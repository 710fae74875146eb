"""What goes wrong: small terminals, odd ones, files and folders that are not as they should be."""

import os
from pathlib import Path

import pytest
from fakes.pilot import Chat, chatting, played
from fakes.scripted import MISMATCH, Script

from localspec_tui.screens.settings import SettingsScreen

MARKDOWN = "# Title\n\n- one\n- two\n\n```python\nx = 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"


@pytest.mark.parametrize("size", [(40, 10), (20, 5), (10, 3), (200, 60)])
def test_any_size_of_terminal(tmp_path: Path, size: tuple[int, int]) -> None:
    async def body() -> None:
        async with chatting(Script([MARKDOWN]), tmp_path, size=size) as chat:
            await chat.ask("hi")
            for key in ("ctrl+l", "ctrl+t", "f1", "escape", "ctrl+o", "escape", "ctrl+s", "escape"):
                await chat.keys(key)
                await chat.ready()
            await chat.pilot.resize_terminal(100, 30)
            await chat.ready()
            assert "hi" in chat.text
            assert chat.contents == ["hi", MARKDOWN]

    played(body())


def test_forty_by_ten_shows_the_answer_the_box_and_the_status(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script(["Yes."]), tmp_path, size=(40, 10)) as chat:
            await chat.ask("hi")
            assert "Yes." in chat.text
            assert "Write a message" in chat.text
            assert "tok/s" in chat.text

    played(body())


def test_no_unicode_no_glyph_beyond_ascii(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(
            Script([f"déjà · 日本 …\n\n{MARKDOWN}"]), tmp_path, encoding="ascii"
        ) as chat:
            await chat.ask("où?")
            for key in ("ctrl+l", "ctrl+t", "f1", "escape", "ctrl+o", "escape", "ctrl+s"):
                await chat.keys(key)
                await chat.ready()
                assert chat.text.isascii()
            await chat.keys("escape", "ctrl+t", "ctrl+l")
            await chat.ready()
            assert "deja * ???? ." in chat.text

    played(body())


def test_no_colour_where_none_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def body() -> None:
        async with chatting(Script([MARKDOWN]), tmp_path) as chat:
            await chat.ask("hi")
            await chat.keys("ctrl+t", "ctrl+l")
            await chat.ready()
            for strip in chat.app.screen._compositor.render_strips():
                for segment in strip:
                    for colour in (segment.style.color, segment.style.bgcolor):
                        assert colour is None or colour.is_default

    played(body())


def test_what_is_chosen_shows_without_colours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def body() -> None:
        async with chatting(Script(), tmp_path) as chat:
            await chat.ask("hi")
            await chat.keys("ctrl+o")
            await chat.ready()
            assert styles_of(chat, "hi (open)") == "bold underline default on default"
            assert "underline" in styles_of(chat, "F")

    played(body())


def styles_of(chat: Chat, text: str) -> str:
    """How a stretch of the screen that begins so looks."""
    segments = (each for strip in chat.app.screen._compositor.render_strips() for each in strip)
    return next(str(each.style) for each in segments if each.text.startswith(text))


def test_a_drafter_that_does_not_fit_is_said(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(names=(), reason=MISMATCH)
        async with chatting(script, tmp_path, size=(100, 24)) as chat:
            assert f"draft: off ({MISMATCH})" in chat.notes
            await chat.ask("hi")
            assert chat.text.count(f"draft: off ({MISMATCH})") == 2

    played(body())


def test_notes_of_the_engine_are_lines_of_the_conversation(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(notes=["the context is 2,048 tokens, as memory holds no more"])
        async with chatting(script, tmp_path) as chat:
            assert chat.notes == list(script.notes)

    played(body())


def test_a_model_that_fails_while_it_answers(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(["one two three four", "good"], rate=4)
        async with chatting(script, tmp_path) as chat:
            script.fails["answer"] = RuntimeError("decode failed")
            await chat.say("hi")
            await chat.until(lambda: "one" in chat.text)
            await chat.ready()
            script.rate = 0
            assert "RuntimeError: decode failed" in chat.notes
            assert chat.screen.composer.text == ""
            assert "stopped" in chat.text
            script.fails.clear()
            await chat.ask("again")
            assert chat.contents[-1] == "good"

    played(body())


def test_a_template_that_refuses(tmp_path: Path) -> None:
    async def body() -> None:
        template = "{{ raise_exception('only one of these') }}"
        async with chatting(Script(template=template), tmp_path) as chat:
            await chat.ask("hi there")
            assert "only one of these" in chat.text
            assert chat.screen.composer.text == "hi there"
            assert chat.contents == []

    played(body())


def test_an_attached_file_is_in_the_message_and_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("remember the milk")

    async def body() -> None:
        async with chatting(Script(), tmp_path) as chat:
            await chat.keys(*"read @no")
            await chat.pilot.pause()
            assert chat.screen.composer.suggestion == "tes.txt"
            await chat.keys("tab")
            assert chat.screen.composer.text == "read @notes.txt"
            await chat.keys("enter")
            await chat.ready()
            assert "remember the milk" in chat.contents[0]
            assert "remember the milk" in chat.text

    played(body())


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"\x00\x01\xff", "is no"), (b"x" * 300_000, "has more than 256 KiB")],
)
def test_a_file_that_cannot_be_attached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.bin").write_bytes(content)

    async def body() -> None:
        async with chatting(Script(), tmp_path) as chat:
            await chat.ask("see @odd.bin")
            assert problem in " ".join(chat.notes)
            assert chat.screen.composer.text == "see @odd.bin"
            assert chat.contents == []

    played(body())


def test_a_paste_of_a_hundred_kilobytes(tmp_path: Path) -> None:
    async def body() -> None:
        pasted = "a line of pasted text, which goes on for a while\n" * 2100
        async with chatting(Script(context=100_000), tmp_path) as chat:
            chat.screen.composer.insert(pasted)
            await chat.keys("enter")
            await chat.ready()
            assert chat.contents == [pasted, "Hello, I am a script."]
            assert "Hello, I am a script." in chat.text

    played(body())


def test_a_message_longer_than_the_context(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script(context=100), tmp_path) as chat:
            await chat.ask("word " * 200)
            assert "and the context holds 100" in " ".join(chat.notes)
            assert chat.screen.composer.text == "word " * 200
            assert chat.app.screen is chat.screen

    played(body())


def test_damaged_sessions_are_put_aside_and_said(tmp_path: Path) -> None:
    (tmp_path / "sessions.sqlite3").write_bytes(b"SQLite format 3\x00" + b"\xff" * 5000)

    async def body() -> None:
        async with chatting(Script(), tmp_path, size=(120, 24)) as chat:
            assert "is kept as" in chat.notes[0]
            await chat.ask("hi")
            assert len(chat.app.archive.list()) == 1

    played(body())


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_home_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    monkeypatch.setenv("LOCALSPEC_HOME", str(closed))
    played(_in_no_folder(closed))


def test_a_home_that_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    closed.write_text("no folder")
    monkeypatch.setenv("LOCALSPEC_HOME", str(closed))
    played(_in_no_folder(closed))


async def _in_no_folder(closed: Path) -> None:
    async with chatting(Script(), closed, size=(120, 24), model="m.gguf") as chat:
        assert any("this one is lost when the chat ends" in note for note in chat.notes)
        assert any("what you choose is not remembered" in note for note in chat.notes)
        await chat.ask("hi")
        assert "Hello, I am a script." in chat.text


def test_settings_open_though_models_toml_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    (tmp_path / "models.toml").write_text("[pairs")

    async def body() -> None:
        async with chatting(Script(), tmp_path, size=(250, 24)) as chat:
            await chat.keys("ctrl+s")
            await chat.until(lambda: "models.toml is no TOML" in chat.text)
            assert isinstance(chat.app.screen, SettingsScreen)

    played(body())


def test_keys_that_have_nothing_to_do(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script(), tmp_path) as chat:
            for key in ("escape", "ctrl+r", "ctrl+b", "up", "ctrl+t", "ctrl+l", "ctrl+n", "enter"):
                await chat.keys(key)
                await chat.ready()
            assert chat.contents == []
            assert chat.notes == []

    played(body())


def test_asking_while_an_answer_is_written_ends_it(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(["word " * 300, "short"], rate=200)
        async with chatting(script, tmp_path) as chat:
            await chat.say("count")
            await chat.until(lambda: len(chat.contents) == 2)
            await chat.say("no, stop")
            await chat.until(lambda: chat.contents[-1:] == ["short"])
            await chat.ready()
            assert "stopped" in chat.text
            assert chat.contents[2:] == ["no, stop", "short"]

    played(body())
