"""Pasted and dropped files become attachments."""

import asyncio
import os
from pathlib import Path

import pytest
from fakes.pilot import ChatPilot, running_chat
from fakes.scripted import Script
from textual import events

from localspec_tui.attachments import Attachments
from localspec_tui.pasted_paths import as_attachments


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "main.py").write_text("print(1)\n")
    (tmp_path / "my notes.txt").write_text("one\n")
    (tmp_path / "it's (a).md").write_text("x\n")
    (tmp_path / "image.png").write_bytes(b"\x89PNG\0")
    return tmp_path


def test_paths_are_attachments(folder: Path) -> None:
    main, notes = folder / "main.py", folder / "my notes.txt"
    assert as_attachments(f"{main}\n") == f"@{main}"
    assert as_attachments("./main.py") == "@./main.py"
    assert as_attachments(main.as_uri()) == f"@{main}"
    assert as_attachments(f"{notes.as_uri()}\n{main.as_uri()}\n") == f'@"{notes}" @{main}'
    for written in (f"{notes}", f"'{notes}'"):
        text = as_attachments(written)
        assert text == f'@"{notes}"' and Attachments().names(text) == [str(notes)]
    assert as_attachments(str(folder / "it's (a).md")) == f'@"{folder}/it\'s (a).md"'


@pytest.mark.skipif(os.name == "nt", reason="its shells have other quotes")
def test_screenshots_with_their_own_spaces_are_attachments(folder: Path) -> None:
    (folder / "Shot 1.02\u202fPM.md").write_text("x\n")
    escaped = f"{folder}/Shot\\ 1.02\u202fPM.md"
    text = as_attachments(escaped)
    assert text == f'@"{folder}/Shot 1.02\u202fPM.md"'
    assert Attachments().names(text) == [f"{folder}/Shot 1.02\u202fPM.md"]
    (folder / "a\x1b.md").write_text("x\n")
    assert as_attachments(f"{folder}/a\x1b.md") is None


@pytest.mark.skipif(os.name == "nt", reason="its shells have other quotes")
def test_paths_are_quoted_as_in_a_shell(folder: Path) -> None:
    escaped = str(folder / "my notes.txt").replace(" ", "\\ ")
    assert as_attachments(f"{escaped} {folder}/main.py ") == (
        f'@"{folder}/my notes.txt" @{folder}/main.py'
    )


@pytest.mark.parametrize(
    "pasted",
    [
        "",
        "main.py",
        "/gone/main.py",
        "see {}/main.py",
        "{}",
        "'{}/main.py",
        "a\0/b",
        "what is file://[x ?",
        "file://\u2100/x",
    ],
)
def test_other_texts_stay(folder: Path, pasted: str) -> None:
    assert as_attachments(pasted.replace("{}", str(folder))) is None


def test_what_cannot_be_attached_is_refused_when_it_is_sent(folder: Path) -> None:
    webp = folder / "x.webp"
    webp.write_bytes(b"RIFF\x40\0\0\0WEBPVP8 ")
    reasons = {webp: "is a WebP image", folder / "image.png": "is no text, JPEG, PNG"}

    async def body() -> None:
        async with running_chat(Script(["Fine."]), folder) as chat:
            for file, reason in reasons.items():
                chat.screen.composer.set_text("")
                chat.app.post_message(events.Paste(f"'{file}'"))
                await chat.pilot.pause()
                assert chat.screen.composer.text == f"@{file} "
                await chat.press("enter")
                assert f"@{file} {reason}" in chat.notes[-1]
                assert chat.screen.composer.text == f"@{file} " and not chat.contents

    asyncio.run(body())


def test_they_are_attached_in_the_box_unless_it_has_a_command(folder: Path) -> None:
    main = folder / "main.py"

    async def paste(chat: ChatPilot, text: str) -> str:
        chat.app.post_message(events.Paste(text))
        await chat.pilot.pause()
        return chat.screen.composer.text

    async def body() -> None:
        async with running_chat(Script(["Fine."]), folder) as chat:
            composer = chat.screen.composer
            await chat.press(*"explain")
            assert await paste(chat, f"{main}") == f"explain @{main} "
            await chat.press("ctrl+z")
            assert composer.text == f"explain{main}"
            composer.set_text("see @")
            assert await paste(chat, f"{main}\n") == f"see @{main} "
            await chat.press("enter")
            await chat.wait_idle()
            assert "print(1)" in chat.contents[0]
            composer.set_text("/save ")
            assert await paste(chat, f"{main}") == f"/save {main}"
            composer.set_text("")
            assert await paste(chat, "one\ntwo") == "one\ntwo"
            await chat.send("/edit-answer")
            composer.load_text("")
            assert await paste(chat, f"{main}") == f"{main}"

    asyncio.run(body())
