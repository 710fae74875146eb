"""Keys that arrive in bursts, through a terminal, as a quick typist or a script writes them."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.chat_terminal import ChatTerminal

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there is no pty")

PASTE = "\x1b[200~{}\x1b[201~"


@pytest.fixture
def chat(tmp_path: Path, home: Path) -> Iterator[ChatTerminal]:
    """A chat that answers at once."""
    with ChatTerminal(tmp_path) as running:
        yield running


def test_text_and_enter_in_one_write_are_sent_whole(chat: ChatTerminal) -> None:
    sent = []
    for number in range(4):
        sent.append(f"how do I list files by size, and by date? {number}")
        chat.type(sent[-1] + "\r")
        chat.wait_for_messages(sent)


def test_text_that_is_typed_while_the_chat_starts_is_in_the_box(tmp_path: Path, home: Path) -> None:
    starting = ChatTerminal(tmp_path)
    starting.wait_for(lambda: b"\x1b[?1049h" in starting.shown)
    starting.type("hel")
    with starting as chat:
        chat.type("lo\r")
        chat.wait_for_messages(["hello"])


def test_a_line_break_stays_where_it_was_typed(chat: ChatTerminal) -> None:
    chat.type("first line\nsecond line\n\nlast\r")
    chat.wait_for_messages(["first line\nsecond line\n\nlast"])


def test_keys_that_edit_act_on_the_text_before_them(chat: ChatTerminal) -> None:
    left, home, end = "\x1b[D", "\x1b[H", "\x1b[F"
    chat.type(f"hellp\x7fo wrld{left * 3}o{end}!{home}> {end}\r")
    chat.wait_for_messages(["> hello world!"])


def test_a_paste_and_enter_in_one_write(chat: ChatTerminal) -> None:
    chat.type("say: " + PASTE.format("one\ntwo\nthree") + " end\r")
    chat.wait_for_messages(["say: one\ntwo\nthree end"])


@pytest.mark.slow
def test_two_thousand_letters_and_enter_in_one_write(chat: ChatTerminal) -> None:
    text = "".join(f"{number:04} " for number in range(400)) + "end"
    chat.type(text + "\r")
    chat.wait_for_messages([text])


def test_a_paste_of_a_terminal_without_bracketed_paste_is_one_message(chat: ChatTerminal) -> None:
    lines = ["def f(x):", "\treturn x", "", "/clear", "{", "}"]
    chat.type("\r".join(lines) + "\r")
    chat.wait_for_messages(["\n".join(lines)])


def test_a_paste_that_is_gone_on_with_is_not_sent_before(chat: ChatTerminal) -> None:
    lines = [f"line {number} of a log" for number in range(60)]
    chat.type("\r".join(lines))
    chat.wait_for(lambda: b"line 59" in chat.shown)
    assert chat.messages == []
    chat.type("!")
    time.sleep(0.5)
    chat.type("\r")
    chat.wait_for_messages(["\n".join(lines) + "!"])


@pytest.mark.slow
def test_other_keys_for_a_line_break(chat: ChatTerminal) -> None:
    for keys in ("one", "\x1b\r", "two\\", "\r", "C:\\\\", "\r"):
        chat.type(keys)
        time.sleep(0.5)
    chat.wait_for_messages(["one\ntwo\nC:\\\\"])
