"""A chat that is killed, or whose terminal is closed, keeps its conversation."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from fakes.chat_terminal import ChatTerminal
from fakes.pilot import running_chat
from fakes.scripted import Script

from localspec_tui import app
from localspec_tui.archive import Archive
from localspec_tui.screens import chat

TESTS = Path(__file__).parents[1]
WORDS = "one two three four five six seven eight nine ten " * 100
# Prints the length of the answer each time it has saved it.
CHILD = f"""
import asyncio, os, sys
from pathlib import Path
from fakes import pilot
from fakes.scripted import Script
from localspec_tui.archive import Archive

class PrintingArchive(Archive):
    def save(self, key, turns, last, origins=None):
        length = len(last.content) if last.role == "assistant" else 0
        super().save(key, turns, last, origins)
        if length:
            os.write(1, f"{{length}}\\n".encode())

async def body():
    async with pilot.running_chat(Script([{WORDS!r}], rate=100), Path(sys.argv[1])) as chat:
        await chat.send("count")
        await chat.until(lambda: not chat.app.is_running)

pilot.Archive = PrintingArchive
pilot.TIMEOUT = 600
asyncio.run(body())
"""


def streaming(folder: Path) -> "subprocess.Popen[bytes]":
    """A chat in another process, which has saved a part of its answer."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
    )
    assert child.stdout
    child.stdout.readline()
    return child


def test_an_answer_is_saved_once_a_second() -> None:
    assert chat.SAVE_INTERVAL == 1.0


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_a_killed_chat_keeps_what_was_saved(tmp_path: Path) -> None:
    with streaming(tmp_path) as child:
        assert child.stdout
        length = int(child.stdout.readline())
        child.kill()
    archive = Archive(tmp_path / "sessions.sqlite3")
    assert archive.problem is None
    opened = archive.open(archive.latest() or "")
    archive.close()
    question, answer = opened.conversation.turns
    assert question.content == "count"
    assert len(answer.content) >= length
    assert WORDS.startswith(answer.content)
    assert answer.stop_reason == "interrupted"

    async def body() -> None:
        async with running_chat(Script(["Go on."]), tmp_path, latest=True) as chat:
            assert "interrupted" in chat.text
            await chat.ask("and then?")
            assert chat.contents == ["count", answer.content, "and then?", "Go on."]

    asyncio.run(body())


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGHUP")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_chat_saves_its_answer_when_the_terminal_is_closed(tmp_path: Path, name: str) -> None:
    with streaming(tmp_path) as child:
        child.send_signal(getattr(signal, name))
        child.wait(60)
    archive = Archive(tmp_path / "sessions.sqlite3")
    [summary] = archive.list()
    answer = archive.open(summary.key).conversation.turns[1]
    archive.close()
    assert WORDS.startswith(answer.content)
    assert answer.stop_reason == "cancelled"


@pytest.mark.skipif(os.name == "nt", reason="there are no such terminals")
@pytest.mark.parametrize("silent", [False, True], ids=["signal", "no signal"])
def test_a_chat_ends_without_its_terminal_while_it_answers(tmp_path: Path, silent: bool) -> None:
    with ChatTerminal(tmp_path, silent=silent, answers=[WORDS], rate=100) as chat:
        chat.type("count\r")
        chat.wait_for(lambda: b"seven" in chat.shown)
        chat.hang_up()
        assert chat.wait_ended() == 0
    question, answer = chat.turns
    assert question.content == "count"
    assert answer.content and WORDS.startswith(answer.content)
    assert answer.stop_reason == "cancelled"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="there are no such terminals")
def test_a_terminal_that_reads_nothing_stops_neither_the_answer_nor_the_end(tmp_path: Path) -> None:
    with ChatTerminal(tmp_path, answers=[WORDS], rate=200) as chat:
        chat.type("count\r")
        chat.wait_for(lambda: b"seven" in chat.shown)
        chat.reads = False
        chat.wait_for(lambda: chat.turns[1:] and chat.turns[1].stop_reason == "eos")
        chat.process.send_signal(signal.SIGTERM)
        chat.process.wait(60)
    assert chat.turns[1].content == WORDS


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="there are no such terminals")
def test_a_terminal_that_reads_again_shows_all(tmp_path: Path) -> None:
    with ChatTerminal(tmp_path, answers=[WORDS + " At last."], rate=200) as chat:
        chat.type("count\r")
        chat.wait_for(lambda: b"seven" in chat.shown)
        chat.reads = False
        chat.wait_for(lambda: chat.turns[1:] and chat.turns[1].stop_reason == "eos")
        before = len(chat.shown)
        chat.reads = True
        chat.wait_for(lambda: b"At last." in chat.shown[before:])
        chat.type("\x04")
        assert chat.wait_ended() == 0


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGTSTP")
def test_a_suspended_chat_is_drawn_whole_again(tmp_path: Path) -> None:
    with ChatTerminal(tmp_path, answers=["Here it is."]) as chat:
        child = psutil.Process(chat.process.pid)
        chat.type("where?\r")
        chat.wait_for(lambda: [turn.stop_reason for turn in chat.turns[1:]] == ["eos"])
        # No shell could continue it.
        chat.type("\x1astill")
        chat.wait_for(lambda: b"still" in chat.shown)
        chat.process.send_signal(signal.SIGTSTP)
        chat.wait_for(lambda: child.status() == psutil.STATUS_STOPPED)
        before = len(chat.shown)
        chat.process.send_signal(signal.SIGCONT)
        chat.wait_for(lambda: b"where?" in chat.shown[before:] and b"Here" in chat.shown[before:])
        chat.type("\x15\x04")
        assert chat.wait_ended() == 0


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="there is no SIGTSTP")
@pytest.mark.parametrize("plain", [True, False])
def test_the_time_in_which_it_was_stopped_does_not_slow_an_answer(
    tmp_path: Path, plain: bool
) -> None:
    """40 tokens at 20 a second, and 6 seconds stopped."""
    script = {"answers": ["word " * 32], "rate": 20.0}
    with ChatTerminal(tmp_path, plain=plain, **script) as chat:
        child = psutil.Process(chat.process.pid)
        chat.type("go\r")
        chat.wait_for(lambda: b"word word" in chat.shown)
        # Without a shell that could continue it, nothing else stops the plain chat.
        chat.process.send_signal(signal.SIGSTOP if plain else signal.SIGTSTP)
        chat.wait_for(lambda: child.status() == psutil.STATUS_STOPPED)
        time.sleep(6)
        chat.process.send_signal(signal.SIGCONT)
        chat.wait_for(lambda: [turn.stop_reason for turn in chat.turns[1:]] == ["eos"])
        speed = rb"([\d.]+) tokens per second" if plain else rb"([\d.]+) tok/s"
        chat.wait_for(lambda: float((re.findall(speed, chat.shown) or [0])[-1]) > 10)


def test_ctrl_z_suspends_where_there_is_nothing_to_undo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspended: list[str] = []

    async def body() -> None:
        async with running_chat(Script(["Fine."]), tmp_path) as chat:
            composer = chat.screen.composer
            monkeypatch.setattr(
                chat.app, "action_suspend_process", lambda: suspended.append(composer.text)
            )
            await chat.press(*"word", "ctrl+z")
            assert composer.text == "" and not suspended
            # What was undone can be had again.
            await chat.press("ctrl+z")
            assert not suspended
            composer.load_text("")
            await chat.press("ctrl+z")
            assert suspended == [""]
            monkeypatch.setattr(app, "is_job_of_shell", lambda: False)
            await chat.press("ctrl+z")
            assert suspended == [""]

    monkeypatch.setattr(app, "is_job_of_shell", lambda: True)
    asyncio.run(body())


@pytest.mark.skipif(os.name == "nt", reason="there are no such terminals")
@pytest.mark.parametrize("silent", [False, True], ids=["signal", "no signal"])
def test_a_chat_ends_without_its_terminal_and_keeps_what_was_typed(
    tmp_path: Path, silent: bool
) -> None:
    with ChatTerminal(tmp_path, silent=silent) as chat:
        chat.type("not sent")
        chat.wait_for(lambda: b"not sent" in chat.shown)
        chat.hang_up()
        assert chat.wait_ended() == 0
    archive = Archive(tmp_path / "sessions.sqlite3")
    assert archive.open(archive.latest() or "").unsent == "not sent"
    archive.close()
