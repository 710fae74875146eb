"""What is typed into the chat without a screen, on a terminal of its own."""

import os
from contextlib import closing
from pathlib import Path

import pytest
from fakes.chat_terminal import ChatTerminal

from localspec.conversation.turns import Turn
from localspec_tui.archive import Archive
from localspec_tui.attachments import Attachments

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
        assert terminal.end_plain() == 0
        assert terminal.messages == ["plain"]


def test_up_brings_the_name_of_an_attached_file_back(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("one\ntwo\n")
    sent = str(Attachments().attach(f"See @{file} now"))
    saved(tmp_path, sent)
    with ChatTerminal(tmp_path, plain=True, env={"TERM": "xterm"}, answers=["One."]) as terminal:
        terminal.type(f"{UP}\r")
        terminal.wait_for(lambda: b"One.\r\n(" in terminal.shown)
        assert b" now" in terminal.shown and b"two" not in terminal.shown
        assert terminal.end_plain() == 0
        assert terminal.messages == [sent]


def test_up_brings_messages_back_as_they_were_sent(tmp_path: Path) -> None:
    """Also those of several lines, those of an earlier chat, and commands."""
    messages = ["one\n\ntwo", "/three\nfour", "//three\nfour", "/four\\", '"""five', "six\\"]
    saved(tmp_path, *messages)
    env = {"TERM": "xterm"}
    with ChatTerminal(tmp_path, plain=True, env=env, answers=[*"abcdefghi"]) as terminal:

        def answered(keys: str, answer: str) -> None:
            terminal.type(keys)
            terminal.wait_for(lambda: f"{answer}\r\n(".encode() in terminal.shown)

        for answer in "abcdef":
            answered(f"{UP * len(messages)}\r", answer)
        assert terminal.messages == messages
        answered('"""seven\n\neight"""\n', "g")
        answered('/edit """nine\nten"""\n', "h")
        answered(f"{UP * 2}\r", "i")
        terminal.type(f"{UP * 2}\x01x\x05\r")
        terminal.wait_for(lambda: len(terminal.messages) == 9)
        assert terminal.end_plain() == 0
        assert terminal.messages == [
            *messages,
            "nine\nten",
            "seven\n\neight",
            'x/edit """nine\nten"""',
        ]


def test_a_paste_of_several_lines_is_one_message(tmp_path: Path) -> None:
    env = {"TERM": "xterm"}
    with ChatTerminal(tmp_path, plain=True, env=env, answers=["One."]) as terminal:
        terminal.wait_for(lambda: b"\x1b[?2004h" in terminal.shown)
        terminal.type("Look: \x1b[200~/one\r\rtwo\\\rthree\x1b[201~\r")
        terminal.wait_for(lambda: b"One.\r\n(" in terminal.shown)
        assert terminal.end_plain() == 0
        assert terminal.messages == ["Look: /one\n\ntwo\\\nthree"]


def test_a_line_that_the_terminal_may_have_cut_is_a_note(tmp_path: Path) -> None:
    env = {"TERM": "dumb"}
    with ChatTerminal(tmp_path, plain=True, env=env, answers=["One.", "Two."]) as terminal:
        terminal.type(f"{'x' * 4094}\n")
        terminal.wait_for(lambda: b"One.\r\n(" in terminal.shown)
        assert b"bytes in one line" not in terminal.shown
        for piece in ("y" * 3000, "y" * 1500, "\n"):
            terminal.type(piece)
        terminal.wait_for(lambda: b"Two.\r\n(" in terminal.shown)
        assert b"\n(a terminal takes 4,095 bytes in one line: " in terminal.shown
        assert terminal.end_plain() == 0
        assert terminal.messages == ["x" * 4094, "y" * 4095]
