"""The clipboards that a copied text reaches, and what the chat says of them."""

import asyncio
import os
import stat
import time
from pathlib import Path

import pytest
from fakes.pilot import running_chat
from fakes.scripted import Script

from localspec_tui.clipboard import copy_to_programs, desktop_programs

posix = pytest.mark.skipif(os.name == "nt", reason="the programs are shell scripts")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that alone is searched for programs."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def put_program(folder: Path, name: str, *, fails: bool = False) -> Path:
    """Put a program into the folder; return the file that gets its arguments and its input."""
    program, taken = folder / name, folder / f"{name}.taken"
    end = "exit 1" if fails else f'{{ echo "$@"; /bin/cat; }} > "{taken}"'
    program.write_text(f"#!/bin/sh\n{end}\n", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return taken


def names(environment: dict[str, str]) -> list[str]:
    return [each.command[0] for each in desktop_programs(environment)]


def test_programs_of_a_desktop_that_is_elsewhere_are_not_run() -> None:
    assert names({}) == ["pbcopy", "clip.exe"]
    here = {"WAYLAND_DISPLAY": "wayland-0", "DISPLAY": ":0"}
    assert names(here) == ["pbcopy", "clip.exe", "wl-copy", "xclip", "xsel"]
    assert names({**here, "SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22"}) == ["xclip", "xsel"]


@posix
def test_the_first_program_that_works_takes_the_text(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    put_program(programs, "xclip", fails=True)
    taken = put_program(programs, "xsel")
    assert copy_to_programs("é\n“x”") == (True, False)
    assert taken.read_text(encoding="utf-8") == "--clipboard --input\né\n“x”"


@posix
def test_windows_reads_utf_16(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_TTY")
    taken = put_program(programs, "clip.exe")
    assert copy_to_programs("漢") == (True, False)
    assert taken.read_bytes() == b"\n" + "漢".encode("utf-16-le")


@posix
@pytest.mark.parametrize(
    ("here", "said"),
    [
        ("", "sent to the terminal's clipboard: 21 letters. Not every terminal takes them"),
        ("xclip", "copied: 21 letters"),
        ("tmux", "sent to tmux and to the terminal's clipboard: 21 letters. Not every"),
        ("old tmux", "sent to the terminal's clipboard: 21 letters."),
    ],
)
def test_the_chat_says_what_is_known(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch, here: str, said: str
) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    name = here.removeprefix("old ")
    taken = put_program(programs, name, fails=here != name) if here else None
    if name == "tmux":
        monkeypatch.setenv("TMUX", "/tmp/tmux-1000/default,1,0")

    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("hi")
            await chat.press("shift+tab", "y")
            await chat.until(lambda: [*chat.app._notifications])
            [note] = chat.app._notifications
            assert note.message.startswith(said)

    asyncio.run(body())
    if taken and here == name:
        assert taken.read_text(encoding="utf-8").endswith("\nHello, I am a script.")


def test_of_two_copies_in_a_row_the_second_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []

    def take(text: str) -> tuple[bool, bool]:
        time.sleep(0.3 if text == "first" else 0)
        taken.append(text)
        return True, False

    monkeypatch.setattr("localspec_tui.copier.copy_to_programs", take)

    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            for text in ("first", "second"):
                chat.app.copier.copy(text)
            await chat.until(lambda: len(taken) == 2)
            assert taken == ["first", "second"]

    asyncio.run(body())
