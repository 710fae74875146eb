"""Images in both chats, with a tiny model that sees."""

import asyncio
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.pilot import ChatPilot, running_chat
from fakes.plain_chat import Chat
from fakes.projectors import picture, seeing_model, sound, tiny_projector
from textual import events

from localspec.conversation.session import Session
from localspec.engine import engine as engines

CAT, DOG = picture(64, 48, seed=1), picture(40, 70, seed=2)
OPTIONS = {"max_tokens": 8, "seed": 3, "temperature": 0.9, "ignore_eos": True}
RUNTIME = {"context": 300, "threads": 1, "kv_type": "f32", "flash_attention": False}
CHIP = "[cat.png 64 x 48]"
CHANGED = (
    "cat.png has changed on the disk: the message keeps it as it was sent, and @./cat.png is the "
    "file as it is now"
)


@pytest.fixture
def loads() -> Any:
    """Loads real models in place of scripted ones."""
    return SimpleNamespace(load=engines.load)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files, in which the chat runs; the model's is another one."""
    folder = tmp_path / "here"
    folder.mkdir()
    for name, data in (("cat.png", CAT), ("my dog.png", DOG), ("a.wav", sound(1.0))):
        (folder / name).write_bytes(data)
    (folder / "notes.txt").write_text("some words\n")
    models = tmp_path / "models"
    models.mkdir()
    shutil.copy(seeing_model("llama"), models / "seeing.gguf")
    shutil.copy(tiny_projector("llama"), models / "mmproj-seeing.gguf")
    (tmp_path / "blind").mkdir()
    shutil.copy(seeing_model("llama"), tmp_path / "blind" / "blind.gguf")
    monkeypatch.chdir(folder)
    return folder


def options(folder: Path, model: str = "models/seeing.gguf") -> dict[str, Any]:
    return {"model": str(folder.parent / model), "sampling": OPTIONS, "runtime": RUNTIME}


def chat_in(folder: Path, loads: Any, **more: Any) -> Any:
    return running_chat(loads, folder.parent, size=(100, 30), **{**options(folder), **more})


def media(chat: ChatPilot) -> list[list[bytes]]:
    return [[span.data for span in turn.media] for turn in chat.screen.conversation.turns]


def session_of(chat: ChatPilot) -> Session:
    session = chat.app.engine_thread.session
    assert session
    return session


def rows(chat: ChatPilot) -> int:
    """The rows of images that the model has read."""
    return sum(token < 0 for token in session_of(chat).written.tokens)


def expected(folder: Path, *parts: dict[str, Any]) -> str:
    path = folder.parent / "models" / "seeing.gguf"
    with engines.load(path, "none", **RUNTIME) as engine:
        return engine.generate([{"role": "user", "content": [*parts]}], **OPTIONS).text


def test_an_image_is_read_where_it_stands_and_shown_as_a_chip(folder: Path, loads: Any) -> None:
    async def body() -> None:
        async with chat_in(folder, loads) as chat:
            await chat.ask("What is this? @cat.png")
            assert f"What is this? {CHIP}" in chat.text
            assert media(chat) == [[CAT], []]
            assert rows(chat) == 16
            session = session_of(chat)
            assert session.gauge.used == len(session.written.tokens)
            parts = ({"type": "text", "text": "What is this?"}, {"type": "image", "image": CAT})
            assert chat.contents[1] == expected(folder, *parts)
            await chat.ask(f"Not {CHIP}")
            assert media(chat)[2] == []
            await chat.ask('@"my dog.png" and @notes.txt?')
            assert media(chat)[4] == [DOG]
            assert chat.contents[4].startswith("[my dog.png 40 x 70] and\n\nnotes.txt:\n")

    asyncio.run(body())


def test_an_edit_keeps_the_image_also_of_a_file_that_is_gone(folder: Path, loads: Any) -> None:
    async def body() -> None:
        async with chat_in(folder, loads) as chat:
            await chat.ask("What is this? @cat.png")
            (folder / "cat.png").write_bytes(DOG)
            await chat.press("shift+tab", "up", "e")
            assert chat.screen.composer.text == "What is this? @cat.png"
            (folder / "cat.png").unlink()
            await chat.ask("And now? @cat.png")
            assert chat.contents[0] == f"And now? {CHIP}" and media(chat)[0] == [CAT]
            await chat.press("ctrl+r")
            await chat.wait_idle()
            await chat.ask("/edit only words")
            assert chat.contents[0] == f"{CHIP} only words" and media(chat)[0] == [CAT]
            assert not any("on the disk" in note for note in chat.notes)
            (folder / "cat.png").write_bytes(DOG)
            await chat.ask("/edit And @cat.png now?")
            assert media(chat)[0] == [CAT] and CHANGED in chat.notes
            await chat.ask("/edit And @./cat.png now?")
            assert media(chat)[0] == [DOG]
            assert CHANGED not in chat.notes
            (folder / "cat.png").unlink()
            await chat.press("shift+tab", "up", "e")
            await chat.ask("no image")
            assert chat.contents[0] == "no image" and media(chat)[0] == []
            # As a new message it is a file that is not there.
            await chat.send("again @cat.png")
            assert any("there is no file cat.png in" in note for note in chat.notes)
            assert chat.screen.composer.text == "again @cat.png"

    asyncio.run(body())


def test_a_conversation_that_is_opened_again_has_its_images(folder: Path, loads: Any) -> None:
    async def body() -> None:
        async with chat_in(folder, loads) as chat:
            await chat.ask("What is this? @cat.png")
            first = chat.contents[1]
        for name in ("cat.png", "my dog.png"):
            (folder / name).unlink()
        async with chat_in(folder, loads, latest=True) as chat:
            assert f"What is this? {CHIP}" in chat.text and media(chat) == [[CAT], []]
            await chat.ask("Why?")
            assert rows(chat) == 16
            await chat.press("up")
            assert chat.screen.composer.text == "Why?"
            await chat.press("up")
            assert chat.screen.composer.text == "What is this? @cat.png"
            assert chat.contents[1] == first

    asyncio.run(body())


@pytest.mark.parametrize(
    ("model", "typed", "told"),
    [
        ("blind/blind.gguf", "see @cat.png", f"{CHIP}: blind.gguf reads texts only: there is no"),
        ("models/seeing.gguf", "hear @a.wav", "[a.wav 1 s]: a sound was given, and this model"),
        ("models/seeing.gguf", "see @huge.png", "@huge.png: an image of 65535 x 65535 pixels was"),
        ("models/seeing.gguf", "see @cut.png", "[cut.png 64 x 48]: an image or a sound cannot be"),
    ],
)
def test_what_is_refused_comes_back_into_the_box(
    folder: Path, loads: Any, model: str, typed: str, told: str
) -> None:
    (folder / "huge.png").write_bytes(CAT[:16] + b"\0\0\xff\xff" * 2 + CAT[24:])
    (folder / "cut.png").write_bytes(CAT[:70])

    async def body() -> None:
        async with chat_in(folder, loads, **options(folder, model)) as chat:
            await chat.ask("first")
            await chat.ask(typed)
            assert chat.notes[-1].startswith(told)
            assert chat.screen.composer.text == typed
            assert len(chat.contents) == 2

    asyncio.run(body())


def test_a_model_without_a_projector_goes_on_with_names(folder: Path, loads: Any) -> None:
    async def body() -> None:
        async with chat_in(folder, loads) as chat:
            await chat.ask("What is this? @cat.png")
            await chat.ask(f"/model {folder.parent}/blind/blind.gguf")
            await chat.ask("Why?")
            line = "blind.gguf cannot see or hear the files of this conversation; in their place it"
            assert any(note.startswith(line) for note in chat.notes)
            assert media(chat) == [[CAT], [], [], []]
            await chat.ask(f"/model {folder.parent}/models/seeing.gguf")
            await chat.ask("And now?")
            assert rows(chat) == 16

    asyncio.run(body())


def test_dropped_files_and_odd_names(folder: Path, loads: Any) -> None:
    (folder / "[bold]x.png").write_bytes(CAT)

    async def body() -> None:
        async with chat_in(folder, loads) as chat:
            for path in (f"{folder}/cat.png", f"'{folder}/my dog.png'"):
                chat.app.post_message(events.Paste(path))
            await chat.until(lambda: chat.screen.composer.text.endswith('dog.png" '))
            text = chat.screen.composer.text
            assert text == f'@{folder}/cat.png @"{folder}/my dog.png" '
            await chat.ask(f"{text}and @[bold]x.png")
            assert media(chat)[0] == [CAT, DOG, CAT]
            assert f"{CHIP} [my dog.png 40 x 70] and [[bold]x.png 64 x 48]" in chat.text

    asyncio.run(body())


def test_a_screenshot_of_a_mac_is_dropped_and_edited(folder: Path, loads: Any) -> None:
    name = "Screenshot at 1.02.03\u202fPM.png"
    (folder / name).write_bytes(CAT)

    async def body() -> None:
        async with chat_in(folder, loads) as chat:
            chat.app.post_message(events.Paste(f"{folder}/{name}".replace(" ", "\\ ")))
            await chat.until(lambda: chat.screen.composer.text == f'@"{folder}/{name}" ')
            await chat.ask(f"{chat.screen.composer.text}What?")
            assert media(chat)[0] == [CAT]
            await chat.press("shift+tab", "up", "e")
            assert chat.screen.composer.text == f'@"{folder}/{name}" What?'
            await chat.ask(f"{chat.screen.composer.text} And?")
            assert media(chat)[0] == [CAT] and chat.contents[0].endswith("What? And?")
            await chat.ask("/edit Why?")
            assert media(chat)[0] == [CAT] and chat.contents[0].endswith("Why?")

    asyncio.run(body())


def test_the_size_of_a_message_says_that_files_are_not_counted(folder: Path, loads: Any) -> None:
    async def body() -> None:
        async with chat_in(folder, loads) as chat:
            chat.screen.composer.set_text("word " * 20 + "@cat.png")
            label = lambda: str(chat.screen.composer.border_subtitle)  # noqa: E731
            await chat.until(lambda: "+ files" in label())

    asyncio.run(body())


# The chat without a screen.


def test_a_plain_chat_says_that_a_file_has_changed(chat: Chat, folder: Path, loads: Any) -> None:
    chat(loads, "What? @cat.png\n", **options(folder))
    (folder / "cat.png").write_bytes(DOG)
    done = chat(loads, "/edit And @cat.png now?\n", latest=True, **options(folder))
    assert f"({CHANGED})" in done.notes.replace("\n", " ")
    assert [span.data for span in done.turns[0].media] == [CAT]


def test_a_plain_chat_reads_images(chat: Chat, folder: Path, loads: Any, tmp_path: Path) -> None:
    typed = "What? @cat.png\n/edit what else?\n/regenerate\n/save a.md\nhear @a.wav\n"
    done = chat(loads, typed, **options(folder))
    assert done.turns[0].content == f"{CHIP} what else?"
    assert done.notes.count(f"(sent with {CHIP})") == 2
    assert [span.data for span in done.turns[0].media] == [CAT]
    assert "a.md; it names images and sounds, and a .json file has them)" in done.notes
    assert "([a.wav 1 s]: a sound was given, and this model hears nothing" in done.notes
    assert done.code == 2
    (folder / "cat.png").unlink()
    again = chat(loads, "Why?\n", latest=True, **options(folder))
    assert f"> {CHIP} what else?" in again.notes
    assert [span.data for span in again.turns[0].media] == [CAT]
    gone = chat(loads, "@cat.png\n", **options(folder))
    assert "(there is no file cat.png in" in gone.notes and gone.code == 2


def test_a_plain_chat_without_a_projector(chat: Chat, folder: Path, loads: Any) -> None:
    done = chat(loads, "a @cat.png\nb\n", **options(folder, "blind/blind.gguf"))
    told = f"({CHIP}: blind.gguf reads texts only: there is no mmproj file beside it; if one was"
    assert told in done.notes and "name it with mmproj)" in done.notes
    assert [turn.content for turn in done.turns if turn.role == "user"] == ["b"]
    named = {**options(folder, "blind/blind.gguf"), "mmproj": str(tiny_projector("llama"))}
    done = chat(loads, "a @cat.png\n", **named)
    assert done.turns[0].media


def test_images_that_are_switched_off_are_there_again(chat: Chat, folder: Path, loads: Any) -> None:
    seeing = options(folder)
    done = chat(loads, "a\nb @cat.png\n", **seeing, mmproj="none")
    told = "seeing.gguf reads texts only: mmproj none switches images off; leave that option out)"
    assert told in done.notes.replace("\n", " ") and len(done.turns) == 2
    done = chat(loads, "b @cat.png\n", latest=True, **{**seeing, "model": None})
    assert "--mmproj" not in done.notes and done.turns[2].media
    (folder.parent / "models" / "mmproj-seeing.gguf").write_bytes(b"broken")
    done = chat(loads, "b @cat.png\n", **seeing)
    why = f"images are not read: {folder.parent}/models/mmproj-seeing.gguf is not a GGUF file"
    assert f"{CHIP}: seeing.gguf reads texts only: {why}" in done.notes
    assert "there is no mmproj file" not in done.notes


def test_an_edit_keeps_an_image_that_is_not_read(chat: Chat, folder: Path, loads: Any) -> None:
    chat(loads, "a @cat.png\n", **options(folder))
    blind = options(folder, "blind/blind.gguf")
    done = chat(loads, "/edit And now?\n", latest=True, **blind)
    assert done.turns[0].content == f"{CHIP} And now?" and done.turns[0].media
    assert "in their place it reads their names" in done.notes and done.code == 0
    done = chat(loads, "/edit And @./cat.png?\n/edit @a.wav?\n", latest=True, **blind)
    assert "[a.wav 1 s]: blind.gguf reads texts only" in done.notes and done.code == 2


def test_a_conversation_goes_on_with_the_file_that_was_named(
    chat: Chat, folder: Path, loads: Any, tmp_path: Path
) -> None:
    path = tmp_path / "named.gguf"
    shutil.copy(tiny_projector("llama"), path)
    blind = options(folder, "blind/blind.gguf")
    assert chat(loads, "a @cat.png\n", **blind, mmproj=str(path)).turns[0].media
    unread = "cannot see or hear the files of this conversation"
    done = chat(loads, "b\n", latest=True, **{**blind, "model": None})
    assert f"(--mmproj {path}, as this conversation was begun)" in done.notes
    assert unread not in done.notes
    done = chat(loads, "c\n", latest=True, **{**blind, "model": None}, mmproj="none")
    assert unread in done.notes
    done = chat(loads, "d\n", latest=True, **{**blind, "model": None})
    assert "as this conversation was begun" not in done.notes
    done = chat(loads, "e @cat.png\n", latest=True, **{**blind, "model": None}, mmproj=str(path))
    assert done.turns[-2].media
    path.unlink()
    done = chat(loads, "f\n", latest=True, **{**blind, "model": None})
    assert "(named.gguf is not on this machine any more)" in done.notes and unread in done.notes
    other = chat(loads, f"g @cat.png\n/model {folder.parent}/models/seeing.gguf\nh\n", **blind)
    assert other.turns[-1].content


def test_what_reads_images_is_loaded_with_the_first(chat: Chat, folder: Path, loads: Any) -> None:
    done = chat(loads, "a\nb @cat.png\nc @cat.png\n", **options(folder))
    assert done.notes.count("(loading mmproj-seeing.gguf)") == 1
    assert done.notes.index("tokens per second") < done.notes.index("(loading mmproj-seeing")
