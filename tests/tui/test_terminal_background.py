"""A light terminal gets a light theme at the first start, and nothing of its answer is typed."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.chat_terminal import ChatTerminal
from fakes.pilot import running_chat
from fakes.scripted import Script
from textual.events import Key

from localspec_tui import terminal_background
from localspec_tui.late_input import LateInput, expect
from localspec_tui.preferences import Preferences
from localspec_tui.terminal_background import (
    ATTRIBUTES,
    BACKGROUND,
    Answered,
    ask,
    background,
    is_light,
)

terminal = pytest.mark.skipif(os.name == "nt", reason="there is no pty")
WHITE, BLACK = b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\", b"\x1b]11;rgb:0000/0000/0000\x07"
ABOUT_IT = b"\x1b[?62;c"
# Colours behind the text on the screens of the two default themes.
LIGHT_THEME, DARK_THEME = b"48;2;224;224;224", b"48;2;18;18;18"


@pytest.mark.parametrize(
    ("colour", "light"),
    [
        ("rgb:ffff/ffff/ffff", True),
        ("rgb:fdfd/f6f6/e3e3", True),
        ("rgba:ffff/ffff/ffff/0000", True),
        ("rgb:f/f/f", True),
        ("rgb:00/2b/36", False),
        ("rgb:0000/0000/ffff", False),
        ("#ffffff", None),
        ("", None),
    ],
)
def test_which_colours_are_light(colour: str, light: bool | None) -> None:
    assert is_light(colour) is light


@pytest.mark.parametrize(
    ("variable", "light"),
    [
        ("0;15", True),
        ("0;default;7", True),
        ("15;0", False),
        ("15;8", False),
        ("default;default", None),
        ("", None),
    ],
)
def test_without_a_terminal_a_variable_may_say_it(variable: str, light: bool | None) -> None:
    assert background({"TERM": "xterm", "COLORFGBG": variable}) == Answered(light)


@pytest.fixture
def pty_ends() -> Iterator[tuple[int, int]]:
    """The terminal's end, and that of a program."""
    ends = os.openpty()
    yield ends
    for each in ends:
        os.close(each)


def asked(ends: tuple[int, int], *answers: bytes, timeout: float = 5.0) -> Answered:
    """What a program learns from a terminal that sends these answers, one after the other."""
    outside, inside = ends

    def answer() -> None:
        question = b""
        while not question.endswith(b"\x1b[c"):
            question += os.read(outside, 100)
        for each in answers:
            os.write(outside, each)
            time.sleep(0.02)

    thread = threading.Thread(target=answer)
    thread.start()
    answered = ask(inside, inside, timeout)
    thread.join()
    return answered


@terminal
@pytest.mark.parametrize(
    ("answers", "answered"),
    [
        ([WHITE + ABOUT_IT], Answered(True)),
        ([BLACK, ABOUT_IT], Answered(False)),
        ([WHITE[:9], WHITE[9:] + ABOUT_IT[:2], ABOUT_IT[2:]], Answered(True)),
        # It does not know the question.
        ([ABOUT_IT], Answered(None)),
        # The user is quick.
        ([b"hel", WHITE + b"lo\r", ABOUT_IT], Answered(True, "hello\r")),
    ],
)
def test_the_terminal_is_asked(
    pty_ends: tuple[int, int], answers: list[bytes], answered: Answered
) -> None:
    import termios

    before = termios.tcgetattr(pty_ends[1])
    assert asked(pty_ends, *answers) == answered
    assert termios.tcgetattr(pty_ends[1]) == before
    # Nothing was echoed, and nothing is left.
    os.set_blocking(pty_ends[0], False)
    os.set_blocking(pty_ends[1], False)
    for end in pty_ends:
        with pytest.raises(BlockingIOError):
            os.read(end, 100)


@pytest.mark.parametrize(
    "whole", [f"{(WHITE + ABOUT_IT).decode()}", f"{(BLACK + ABOUT_IT).decode()}"]
)
def test_late_answers_may_come_in_any_pieces(whole: str) -> None:
    for first in range(len(whole)):
        for second in range(first, len(whole) + 1):
            late = LateInput("a" + whole[:first], (BACKGROUND, ATTRIBUTES))
            typed = late.due() + late.without_answers(whole[first:second])
            typed += late.without_answers(whole[second:] + "b") + late.due()
            assert typed == "ab"


def test_keys_that_begin_like_answers_are_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([1.0, 1.05, 1.2])
    monkeypatch.setattr("localspec_tui.late_input.monotonic", lambda: next(clock))
    late = LateInput("", (BACKGROUND, ATTRIBUTES))
    assert late.without_answers("\x1b") == ""
    assert late.due() == ""
    assert late.due() == "\x1b"
    assert late.without_answers("x") == "x"


@terminal
def test_a_silent_terminal_costs_a_tenth_of_a_second(pty_ends: tuple[int, int]) -> None:
    assert terminal_background.TIMEOUT == 0.1
    assert asked(pty_ends, timeout=0.05) == Answered(None, is_complete=False)
    assert asked(pty_ends, WHITE, timeout=0.05) == Answered(True, is_complete=False)


@terminal
def test_what_was_typed_before_comes_first_also_half_a_line(pty_ends: tuple[int, int]) -> None:
    os.write(pty_ends[0], b"early\rand ha")
    assert asked(pty_ends, b"lf\r", WHITE + ABOUT_IT) == Answered(True, "early\rand half\r")


@pytest.mark.slow
@terminal
@pytest.mark.parametrize("theme", ["", "textual-dark"])
def test_a_message_that_was_typed_before_is_sent(tmp_path: Path, home: Path, theme: str) -> None:
    Preferences().remember(theme=theme or None)
    with ChatTerminal(tmp_path, before=b"too early\r") as chat:
        chat.wait_for_messages(["too early"])


def test_late_answers_are_overlooked_once() -> None:
    late = LateInput("", (BACKGROUND, ATTRIBUTES))
    assert late.without_answers("a\x1b[A") == "a\x1b[A"
    assert late.without_answers("b\x1b]11;rgb:ff") == "b"
    assert late.without_answers("ff/ffff/ffff\x1b") == ""
    assert late.without_answers("\\c\x1b") == "c"
    assert late.without_answers("\x1b[?6") == "\x1b"
    assert late.without_answers("2;4cd") == "d"
    assert late.without_answers("\x1b[?62c\x1b]1") == "\x1b[?62c\x1b]1"


@terminal
@pytest.mark.parametrize(
    ("data", "keys"),
    [
        ("\x1b\x03\x1b", ["escape", "ctrl+c", "escape"]),
        ("^a\x1b[A", ["circumflex_accent", "a", "up"]),
    ],
)
def test_an_escape_in_a_burst_of_keys_is_no_letter(
    monkeypatch: pytest.MonkeyPatch, data: str, keys: list[str]
) -> None:
    from textual.drivers import linux_driver

    monkeypatch.setattr(linux_driver, "XTermParser", linux_driver.XTermParser)
    expect(Answered(None))
    parser = linux_driver.XTermParser()
    found = [*parser.feed(data)]
    monkeypatch.setattr("textual._parser.get_time", lambda: float("inf"))
    found += parser.tick()
    assert [each.key for each in found if isinstance(each, Key)] == keys


@terminal
@pytest.mark.parametrize(("answer", "theme"), [(WHITE, LIGHT_THEME), (BLACK, DARK_THEME)])
def test_the_first_theme_suits_the_terminal(
    tmp_path: Path, home: Path, answer: bytes, theme: bytes
) -> None:
    with ChatTerminal(tmp_path, answer=answer + ABOUT_IT, env={"COLORTERM": "truecolor"}) as chat:
        chat.wait_for(lambda: theme in chat.shown)
        assert (DARK_THEME in chat.shown) == (theme == DARK_THEME)
        chat.type("hello\r")
        chat.wait_for_messages(["hello"])
    # It is asked again next time.
    assert Preferences.read().theme is None


@terminal
def test_keys_typed_meanwhile_are_in_the_box_and_late_answers_are_not(
    tmp_path: Path, home: Path
) -> None:
    with ChatTerminal(tmp_path, answer=b"hel") as chat:
        chat.type(WHITE + b"lo" + ABOUT_IT + b" all\r")
        chat.wait_for_messages(["hello all"])


@pytest.mark.slow
@terminal
def test_a_theme_that_was_chosen_stays_and_nothing_is_asked(tmp_path: Path, home: Path) -> None:
    Preferences().remember(theme="textual-dark")
    for env in ({}, {"NO_COLOR": "1"}):
        with ChatTerminal(tmp_path, answer=WHITE + ABOUT_IT, env=env) as chat:
            assert b"\x1b]11;?" not in chat.shown
        Preferences.read().remember(theme=None)


@terminal
def test_the_plain_chat_asks_nothing(tmp_path: Path, home: Path) -> None:
    with ChatTerminal(tmp_path, plain=True) as chat:
        assert b"\x1b]11;?" not in chat.shown


@pytest.mark.slow
def test_a_theme_that_was_guessed_is_not_remembered_but_the_next_choice_is(
    tmp_path: Path, home: Path
) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path, is_terminal_light=True) as chat:
            assert chat.app.theme == "textual-light"
            assert Preferences.read().theme is None
            chat.app.theme = "nord"
            await chat.until(lambda: Preferences.read().theme == "nord")
        async with running_chat(Script(), tmp_path, is_terminal_light=True) as chat:
            assert chat.app.theme == "nord"

    asyncio.run(body())
