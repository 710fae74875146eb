"""The chat on small and limited terminals, with failing models, and with bad files and folders."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from fakes.pilot import ChatPilot, running_chat
from fakes.scripted import MISMATCH, Script
from textual.app import App
from textual.widgets._toast import Toast

from localspec_tui.screens.settings import SettingsScreen

MARKDOWN = "# Title\n\n- one\n- two\n\n```python\nx = 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"


@pytest.mark.parametrize("size", [(40, 10), (20, 5), (10, 3), (5, 10), (200, 60)])
def test_any_size_of_terminal(tmp_path: Path, size: tuple[int, int]) -> None:
    async def body() -> None:
        async with running_chat(Script([MARKDOWN]), tmp_path, size=size) as chat:
            await chat.ask("hi")
            for key in ("ctrl+l", "ctrl+t", "f1", "escape", "ctrl+o", "escape", "ctrl+s", "escape"):
                await chat.press(key)
                await chat.wait_idle()
            await chat.pilot.resize_terminal(100, 30)
            await chat.wait_idle()
            assert "hi" in chat.text
            assert chat.contents == ["hi", MARKDOWN]

    asyncio.run(body())


def test_nothing_is_drawn_behind_a_dialog_while_nothing_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[None] = []
    display = App._display

    def counted(app: App[None], *drawing: Any) -> None:
        drawn.append(None)
        display(app, *drawing)

    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.press("f1")
            for _ in range(10):  # until the dialog itself is drawn
                drawn.clear()
                await asyncio.sleep(1)
                if len(drawn) <= 1:
                    break
            assert len(drawn) <= 1

    monkeypatch.setattr(App, "_display", counted)
    asyncio.run(body())


@pytest.mark.skipif(os.name == "nt", reason="there a folder that is in use stays")
def test_the_folder_of_the_chat_may_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")

    async def body() -> None:
        async with running_chat(Script(["Yes."]), tmp_path) as chat:
            (tmp_path / "gone").rmdir()
            await chat.ask("Are you there?")
            assert chat.contents == ["Are you there?", "Yes."]
            await chat.ask("Read @notes.txt")
            assert (
                "notes.txt: the folder of this chat was deleted, so a file needs its whole path"
                in chat.notes[-1]
            )

    asyncio.run(body())


def test_forty_by_ten_cells_show_answer_composer_and_status(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(["Yes."]), tmp_path, size=(40, 10)) as chat:
            await chat.ask("hi")
            assert "Yes." in chat.text
            assert "Write a message" in chat.text
            assert "tok/s" in chat.text

    asyncio.run(body())


def test_the_conversation_keeps_its_width_whatever_is_below(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(["word " * 400])
        async with running_chat(script, tmp_path) as chat:
            view = chat.screen.view
            await chat.ask("hi")
            script.rate = 50
            await chat.send("more")
            await chat.send("queued")
            chat.screen.progress.show_action("reading")
            await chat.press("ctrl+t", "ctrl+f")
            await chat.until(lambda: all(text in chat.text for text in ("queued", "reading …")))
            assert "Find:" in chat.text and "plain" in chat.text
            assert view.size.width == 78 and view.region.width == 80
            await chat.press("escape", "escape", "escape")
            await chat.wait_idle()

    asyncio.run(body())


def test_brackets_in_names_are_no_markup(tmp_path: Path) -> None:
    async def body() -> None:
        model = str(tmp_path / "[bold]odd.gguf")
        async with running_chat(Script(), tmp_path, model=model) as chat:
            assert "[bold]odd.gguf" in chat.text
            chat.screen.progress.show_action("loading drafter [/x]")
            await chat.pilot.pause()
            assert "loading drafter [/x] …" in chat.text

    asyncio.run(body())


def test_why_an_answer_ended_is_shown_whole(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(["Yes."]), tmp_path, size=(40, 14)) as chat:
            await chat.ask("hi")
            await chat.ask("/edit-answer No.")
            words = " ".join(chat.text.split())
            assert "edited: a message may follow, or Ctrl-G goes on from here" in words

    asyncio.run(body())


def test_a_short_message_of_the_app_hides_one_row(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path, size=(60, 18), notifications=True) as chat:
            chat.screen.composer.set_text("never mind")
            await chat.press("ctrl+c")
            await chat.until(lambda: "kept: Up brings it back" in chat.text)
            assert [toast.region.height for toast in chat.app.screen.query(Toast)] == [1]
            await chat.press("up")
            assert chat.screen.composer.text == "never mind"

    asyncio.run(body())


def test_a_terminal_without_unicode_gets_ascii_only(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(
            Script([f"déjà · 日本 …\n\n{MARKDOWN}"]), tmp_path, encoding="ascii"
        ) as chat:
            await chat.ask("où?")
            for key in ("ctrl+l", "ctrl+t", "f1", "escape", "ctrl+o", "escape", "ctrl+s"):
                await chat.press(key)
                await chat.wait_idle()
                assert chat.text.isascii()
            await chat.press("escape", "ctrl+t", "ctrl+l")
            await chat.wait_idle()
            assert "deja * ???? ." in chat.text

    asyncio.run(body())


def test_no_color_removes_all_colours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def body() -> None:
        async with running_chat(Script([MARKDOWN]), tmp_path) as chat:
            await chat.ask("hi")
            await chat.press("ctrl+t", "ctrl+l")
            await chat.wait_idle()
            for strip in chat.app.screen._compositor.render_strips():
                for segment in strip:
                    for colour in (segment.style.color, segment.style.bgcolor):
                        assert colour is None or colour.is_default

    asyncio.run(body())


def test_the_highlighted_session_is_visible_without_colours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("hi")
            await chat.press("ctrl+o")
            await chat.wait_idle()
            assert style_of(chat, "hi (open)") == "bold underline default on default"
            # The cursor blinks.
            await chat.until(lambda: "underline" in style_of(chat, "F"))

    asyncio.run(body())


def style_of(chat: ChatPilot, text: str) -> str:
    """The style of the first segment on the screen that starts with a text."""
    segments = (each for strip in chat.app.screen._compositor.render_strips() for each in strip)
    return next(str(each.style) for each in segments if each.text.startswith(text))


def test_the_reason_for_a_missing_drafter_is_shown(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(names=(), reason=MISMATCH)
        async with running_chat(script, tmp_path, size=(100, 24)) as chat:
            assert f"draft: off ({MISMATCH})" in chat.notes
            await chat.ask("hi")
            assert chat.text.count(f"draft: off ({MISMATCH})") == 2

    asyncio.run(body())


def test_notes_of_the_engine_are_shown_in_the_conversation(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(notes=["the context is 2,048 tokens, as memory holds no more"])
        async with running_chat(script, tmp_path) as chat:
            assert chat.notes == list(script.notes)

    asyncio.run(body())


def test_an_error_while_answering_keeps_the_partial_answer(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(["one two three four", "good"], rate=4)
        async with running_chat(script, tmp_path) as chat:
            script.fails["answer"] = RuntimeError("decode failed")
            await chat.send("hi")
            await chat.until(lambda: "one" in chat.text)
            await chat.wait_idle()
            script.rate = 0
            assert "RuntimeError: decode failed" in chat.notes
            assert chat.screen.composer.text == ""
            assert "stopped" in chat.text
            script.fails.clear()
            await chat.ask("again")
            assert chat.contents[-1] == "good"

    asyncio.run(body())


def test_a_chat_template_that_raises_returns_the_message(tmp_path: Path) -> None:
    async def body() -> None:
        template = "{{ raise_exception('only one of these') }}"
        async with running_chat(Script(template=template), tmp_path) as chat:
            await chat.ask("hi there")
            assert "only one of these" in chat.text
            assert chat.screen.composer.text == "hi there"
            assert chat.contents == []

    asyncio.run(body())


def test_a_file_name_is_completed_and_its_file_attached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("remember the milk")

    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.press(*"read @no")
            await chat.pilot.pause()
            assert chat.screen.composer.suggestion == "tes.txt"
            await chat.press("tab")
            assert chat.screen.composer.text == "read @notes.txt"
            await chat.press("enter")
            await chat.wait_idle()
            assert "remember the milk" in chat.contents[0]
            assert "remember the milk" in chat.text
            # What is edited, and what comes back later, has the name of the file.
            await chat.press("shift+tab", "up", "e")
            assert chat.screen.composer.text == "read @notes.txt"
            await chat.press("escape")
        async with running_chat(Script(), tmp_path) as chat:
            await chat.press("up")
            assert chat.screen.composer.text == "read @notes.txt"

    asyncio.run(body())


def test_tab_puts_quotes_around_a_name_with_spaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my notes.txt").write_text("remember the milk")

    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.press(*"read @my", "tab", "!")
            assert chat.screen.composer.text == 'read @"my notes.txt"!'
            await chat.press("ctrl+z", "ctrl+z")
            assert chat.screen.composer.text == "read @my"

    asyncio.run(body())


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"\x00\x01\xff", "is no"), (b"x" * 300_000, "has more than 256 KiB")],
)
def test_a_file_that_cannot_be_attached_returns_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.bin").write_bytes(content)

    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("see @odd.bin")
            assert problem in " ".join(chat.notes)
            assert chat.screen.composer.text == "see @odd.bin"
            assert chat.contents == []

    asyncio.run(body())


def test_a_paste_of_a_hundred_kilobytes_is_sent_whole(tmp_path: Path) -> None:
    async def body() -> None:
        pasted = "a line of pasted text, which goes on for a while\n" * 2100
        async with running_chat(Script(context=100_000), tmp_path) as chat:
            chat.screen.composer.insert(pasted)
            await chat.press("enter")
            await chat.wait_idle()
            assert chat.contents == [pasted, "Hello, I am a script."]
            assert "Hello, I am a script." in chat.text

    asyncio.run(body())


def test_a_message_longer_than_the_context_is_returned(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(context=100), tmp_path) as chat:
            await chat.ask("word " * 200)
            assert "and the context holds 100" in " ".join(chat.notes)
            assert chat.screen.composer.text == "word " * 200
            assert chat.app.screen is chat.screen

    asyncio.run(body())


def test_a_damaged_session_file_is_moved_aside_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "sessions.sqlite3").write_bytes(b"SQLite format 3\x00" + b"\xff" * 5000)

    async def body() -> None:
        async with running_chat(Script(), tmp_path, size=(120, 24)) as chat:
            assert "was renamed to" in chat.notes[0]
            await chat.ask("hi")
            assert len(chat.app.archive.list()) == 1

    asyncio.run(body())


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_home_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    monkeypatch.setenv("LOCALSPEC_HOME", str(closed))
    asyncio.run(_chat_without_home(closed))


def test_a_home_folder_that_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    closed.write_text("no folder")
    monkeypatch.setenv("LOCALSPEC_HOME", str(closed))
    asyncio.run(_chat_without_home(closed))


async def _chat_without_home(closed: Path) -> None:
    async with running_chat(Script(), closed, size=(120, 24), model="m.gguf") as chat:
        assert any("this one is lost when the chat ends" in note for note in chat.notes)
        assert any("your choices cannot be saved" in note for note in chat.notes)
        await chat.ask("hi")
        assert "Hello, I am a script." in chat.text


def test_settings_open_with_a_broken_models_toml(home: Path, tmp_path: Path) -> None:
    (home / "models.toml").write_text("[pairs")

    async def body() -> None:
        async with running_chat(Script(), tmp_path, size=(250, 24)) as chat:
            await chat.press("ctrl+s")
            await chat.until(lambda: "models.toml is not valid TOML" in chat.text)
            assert isinstance(chat.app.screen, SettingsScreen)

    asyncio.run(body())


def test_keys_without_effect_in_an_empty_chat(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            for key in ("escape", "ctrl+r", "ctrl+b", "up", "ctrl+t", "ctrl+l", "ctrl+n", "enter"):
                await chat.press(key)
                await chat.wait_idle()
            assert chat.contents == []
            assert chat.notes == []

    asyncio.run(body())


def test_nothing_turns_the_order_of_letters_around(tmp_path: Path) -> None:
    """Neither in the box nor in the conversation, whose text stays as it is."""
    text = "rm \u202etxt.elif\u202c \u2066x\u2069"

    async def body() -> None:
        async with running_chat(Script([text]), tmp_path) as chat:
            chat.screen.composer.set_text(text)
            await chat.settle()
            assert "rm txt.elif x" in chat.text
            await chat.press("enter")
            await chat.wait_idle()
            await chat.settle()
            assert chat.text.count("rm \ufffdtxt.elif x") == 2
            assert chat.contents == [text, text]

    asyncio.run(body())
