"""What is typed into the chat without a screen, on a terminal of its own."""

import os
from contextlib import closing
from pathlib import Path

import pytest
from fakes.chat_terminal import CTRL_D, ChatTerminal

from localspec.conversation.turns import Turn
from localspec_tui.archive import Archive

pytestmark = [
    pytest.mark.usefixtures("home"),
    pytest.mark.skipif(os.name == "nt", reason="there is no pty"),
]
UP = "\x1b[A"


def saved(folder: Path, *messages: str) -> None:
    """Keep a conversation of these messages."""
    with closing(Archive(folder / "sessions.sqlite3")) as archive:
        turns = [Turn("user", message) for message in messages]
        archive.save(archive.create("scripted", None), turns, turns[-1])


def test_what_the_locale_cannot_write_is_left_out_of_the_history(tmp_path: Path) -> None:
    saved(tmp_path, "plain", "d\u00e9j\u00e0 vu")
    env = {"LC_ALL": "C", "TERM": "xterm"}
    with ChatTerminal(tmp_path, plain=True, env=env, answers=["One."]) as terminal:
        terminal.type(f"{UP}\r")
        terminal.wait_for(lambda: b"One.\r\n(" in terminal.shown)
        terminal.type(CTRL_D)
        assert terminal.wait_ended() == 0
        assert terminal.messages == ["plain"]
