"""Very long lines in the text box are short labels there, and whole everywhere else."""

import asyncio
from pathlib import Path

import pytest
from fakes.pilot import ChatPilot, running_chat
from fakes.scripted import Script
from hypothesis import given
from hypothesis import strategies as st
from textual import events

from localspec_tui.folded_lines import LONGEST, MOST_LINES, FoldedLines
from localspec_tui.screens import chat as chat_screen

LINE = "the quick brown fox " * 5000  # 100 kB
OTHER = "jumps over " * 2000
LABEL = "[pasted #1: 100.0 kB in one line]"


async def paste(chat: ChatPilot, text: str) -> None:
    before = chat.screen.composer.document.text
    chat.app.post_message(events.Paste(text))
    await chat.until(lambda: chat.screen.composer.document.text != before)


def shown(chat: ChatPilot) -> str:
    return chat.screen.composer.document.text


def test_a_long_line_is_sent_whole_and_comes_back(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(context=99_000), tmp_path) as chat:
            composer = chat.screen.composer
            await chat.press(*"see ")
            await paste(chat, f"{LINE}\nshort\n{OTHER}")
            second = "[pasted #2: 22.0 kB in one line]"
            assert shown(chat) == f"see {LABEL}\nshort\n{second}"
            assert LABEL in chat.text
            await chat.press(*" so")
            whole = f"see {LINE}\nshort\n{OTHER} so"
            assert composer.text == whole
            await chat.press("enter")
            await chat.wait_idle()
            assert chat.contents[0] == whole
            # From the earlier messages, and to be edited.
            await chat.press("up")
            assert composer.text == whole and len(shown(chat)) < 200
            composer.set_text("")
            await chat.press("shift+tab", "up", "e")
            assert composer.text == whole and len(shown(chat)) < 200

    asyncio.run(body())


def test_many_lines_are_one_label(tmp_path: Path) -> None:
    many = "".join(f"line {i}\n" for i in range(MOST_LINES + 500))
    label = f"[pasted #1: {len(many) / 1000:.1f} kB in 1,500 lines]"

    async def body() -> None:
        async with running_chat(Script(context=99_000), tmp_path) as chat:
            await chat.press(*"see ")
            # As terminals end lines.
            await paste(chat, many.replace("\n", "\r"))
            assert shown(chat) == f"see {label}" and label in chat.text
            await chat.press(*"so", "enter")
            await chat.wait_idle()
            assert chat.contents[0] == f"see {many}so"
            await chat.press("up")
            assert chat.screen.composer.text == f"see {many}so"

    asyncio.run(body())


def test_it_is_kept_with_the_session(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("first")
            await paste(chat, LINE)
        async with running_chat(Script(), tmp_path, latest=True) as chat:
            assert chat.screen.composer.text == LINE
            assert shown(chat) == LABEL

    asyncio.run(body())


def test_changes_leave_no_part_of_a_label(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            composer = chat.screen.composer
            await chat.press("a")
            await paste(chat, LINE)
            await chat.press("b", "left", "left", "left", "x")
            # What is typed within a label comes behind it.
            assert composer.text == f"a{LINE}xb" and shown(chat) == f"a{LABEL}xb"
            await chat.press("left", "left", "delete")
            assert composer.text == "axb"
            await chat.press("ctrl+z")
            assert composer.text == f"a{LINE}xb"
            await chat.press("ctrl+y")
            assert composer.text == "axb"
            await chat.press("ctrl+z")
            # A selection from within a label takes all of it, and a cut is pasted whole.
            composer.selection = type(composer.selection)((0, 5), (0, len(shown(chat)) - 1))
            assert composer.selected_text == f"{LINE}x"
            await chat.press("ctrl+x")
            assert composer.text == "ab"
            assert chat.app.clipboard == f"{LINE}x"
            await chat.press("backspace", "ctrl+v")
            assert composer.text == f"{LINE}xb"
            assert len(shown(chat)) < 100

    asyncio.run(body())


def test_a_backslash_at_the_end_of_a_folded_line_makes_a_new_line(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(context=99_000), tmp_path) as chat:
            await chat.press(*"see ")
            await paste(chat, LINE + "\\")
            await chat.press("enter", *"more")
            assert chat.screen.composer.text == f"see {LINE}\nmore"
            assert shown(chat).startswith("see [") and len(shown(chat)) < 100
            await chat.press("enter")
            await chat.wait_idle()
            assert chat.contents[0] == f"see {LINE}\nmore"

    asyncio.run(body())


def test_two_backslashes_at_the_end_of_a_folded_line_are_sent(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(context=99_000), tmp_path) as chat:
            await paste(chat, LINE + "\\")
            await chat.press("backslash", "enter")
            await chat.wait_idle()
            assert chat.contents[0] == LINE + "\\\\"

    asyncio.run(body())


def test_the_editor_has_the_whole_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def edited(_app: object, text: str) -> tuple[str, None]:
        assert text == LINE
        return f"{text}end", None

    monkeypatch.setattr(chat_screen, "edit_outside", edited)

    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await paste(chat, LINE)
            await chat.press("f4")
            await chat.until(lambda: chat.screen.composer.text == f"{LINE}end")
            assert len(shown(chat)) < 100

    asyncio.run(body())


@given(st.lists(st.sampled_from(["a", "\n", "\r\n", " [", "b" * (LONGEST + 1), "c" * LONGEST])))
def test_what_is_folded_is_unfolded(parts: list[str]) -> None:
    lines, text = FoldedLines(), "".join(parts)
    folded = lines.fold(text)
    assert lines.unfold(folded) == text
    assert max(map(len, folded.splitlines()), default=0) <= LONGEST


def test_a_label_that_is_in_the_text_is_not_taken(tmp_path: Path) -> None:
    lines, text = FoldedLines(), f"{LABEL}\n{LINE}"
    assert lines.fold(text) == f"{LABEL}\n{LABEL.replace('#1', '#2')}"
    assert lines.unfold(lines.fold(text)) == text


def test_columns_are_moved_out_of_labels() -> None:
    lines = FoldedLines()
    line = f"ab{lines.fold(LINE)}cd"
    end = 2 + len(LABEL)
    assert lines.outside(line, 5, 5) == (end, end)
    assert lines.outside(line, 5, 6) == (2, end)
    assert lines.outside(line, 0, 3) == (0, end)
    assert lines.outside(line, 2, end) == (2, end)
    assert lines.outside(line, 1, 2) == (1, 2)
    assert lines.outside("no label", 1, 3) == (1, 3)
