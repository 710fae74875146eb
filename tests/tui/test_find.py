"""Finding a text in a conversation."""

import asyncio
from pathlib import Path

import pytest
from fakes.markdown_texts import LINES
from fakes.pilot import ChatPilot, running_chat, screen_segments
from fakes.scripted import Script
from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual.content import Content
from textual.widgets import Input

from localspec_tui import conversation_search, shown_texts
from localspec_tui.found_text import Span, occurrences, shown_text, spans_by_row
from localspec_tui.markdown.document import Document
from localspec_tui.markdown.layout import BlockLayout
from localspec_tui.markdown.line import Line
from localspec_tui.shown_texts import markdown_text
from localspec_tui.text_pattern import pattern_of
from localspec_tui.widgets.find_bar import FindBar

LONG = "\n\n".join(f"Paragraph {n} of many, with a pear." for n in range(60))
CODE = "So:\n\n```python\nprint('Needle')\n```\n\nand **a needle** again"


def count(chat: ChatPilot) -> str:
    return str(chat.screen.query_one("#found").render()).strip()


def marked(chat: ChatPilot) -> list[str]:
    """What is underlined on the screen, which the marks of found places are."""
    rows = screen_segments(chat.app)
    found = (each for row in rows for each in row if each.style and each.style.underline)
    return [each.text for each in found]


@pytest.mark.slow
def test_places_are_shown_one_after_the_other(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script([CODE, LONG, "No fruit."])
        async with running_chat(script, tmp_path, size=(80, 24)) as chat:
            for question in ("where is the needle?", "many", "last"):
                await chat.ask(question)
            assert "needle" not in chat.text
            await chat.press("ctrl+f", *"needle")
            await chat.until(lambda: count(chat) == "3 of 3")
            await chat.until(lambda: "and a needle again" in chat.text)
            assert marked(chat) == ["Needle", "needle"]
            await chat.press("enter")
            assert count(chat) == "1 of 3"
            await chat.until(lambda: "where is the needle?" in chat.text)
            await chat.press("up")
            assert count(chat) == "3 of 3"
            # A place in the middle of a long answer.
            chat.screen.query_one("Input").value = "paragraph 30"
            await chat.until(lambda: count(chat) == "1 of 1" and "Paragraph 30 of" in chat.text)
            assert marked(chat) == ["Paragraph 30"]
            chat.screen.query_one("Input").value = "nowhere"
            await chat.until(lambda: count(chat) == "nothing" and not marked(chat))
            await chat.press("escape")
            assert chat.screen.composer.has_focus
            assert not chat.screen.query_one(FindBar).display
            # What was looked for last is looked for again, and typing replaces it.
            await chat.press("ctrl+f", *"pear")
            await chat.until(lambda: count(chat) == "60 of 60")
            await chat.press("f3")
            assert count(chat) == "1 of 60"
            await chat.press("shift+f3", "escape")
            await chat.until(lambda: not marked(chat))
            await chat.send("/find Needle")
            await chat.until(lambda: count(chat) == "3 of 3" and marked(chat) != [])
            await chat.press("escape")
            await chat.send("/find")
            await chat.until(lambda: count(chat) == "3 of 3")

    asyncio.run(body())


def test_the_origin_view_is_searched_and_letters_stay_in_the_bar(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script([LONG]), tmp_path) as chat:
            await chat.ask("many")
            await chat.press("ctrl+t", "ctrl+f", *"graph 7 of")
            await chat.until(lambda: count(chat) == "1 of 1" and "Paragraph 7 of" in chat.text)
            assert chat.screen.composer.text == ""

    asyncio.run(body())


def test_ctrl_c_closes_the_bar_and_leaves_the_text_box(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            chat.screen.composer.set_text("half a thought")
            await chat.press("ctrl+f", *"needle", "ctrl+c")
            assert not chat.screen.search.bar.display
            # Its text is selected where it is opened again.
            await chat.press("ctrl+f", "ctrl+c")
            assert not chat.screen.search.bar.display
            assert chat.screen.composer.has_focus
            assert chat.screen.composer.text == "half a thought"

    asyncio.run(body())


@pytest.mark.slow
def test_older_turns_are_mounted(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(["The needle.", *[LONG] * 30])
        async with running_chat(script, tmp_path) as chat:
            for number in range(12):
                await chat.ask(f"question {number}")
            chat.screen.view.show([])
            chat.screen.view.show(chat.screen.conversation.turns)
            await chat.pilot.pause()
            assert all(view.turn.content != "The needle." for view in chat.screen.view.turn_views)
            await chat.press("ctrl+f", *"needle")
            await chat.until(lambda: "The needle." in chat.text and marked(chat) == ["needle"])

    asyncio.run(body())


MARKS = """So **b**foo, *it*`alic` and ![](pic.png).

1. [Docs](http://a.b/c) of `x  y`
2. > quoted
   ```python
   if needle:
       return
   ```

| Name | What it does |
|---|--:|
| **alpha**beta | a long description of what alpha does |
"""


def test_what_is_shown_is_found_and_marked(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script([MARKS]), tmp_path, size=(40, 40)) as chat:
            await chat.ask("**b** foo")
            await chat.press("ctrl+f")
            box = chat.screen.query_one(FindBar).query_one("Input")
            for text, parts in [
                ("bfoo", "b foo"),
                ("**b", "**b"),
                ("italic and image (pic.png)", "it alic and image (pic.png)"),
                ("docs (http://a.b/c) of", "Docs (http://a.b/c) of"),
                ("2. quoted", ""),
                ("1. docs", "1. Docs"),
                ("if needle: return", "if needle : return"),
                ("alphabeta a long description of", "alpha beta a long description of"),
                ("│", ""),
                ("python", ""),
                ("---", ""),
            ]:
                box.value = text
                expected = "1 of 1" if parts else "nothing"
                await chat.until(lambda expected=expected: count(chat) == expected)
                # Where it is cut into rows, and between styles, a place has several parts.
                await chat.until(lambda parts=parts: words(parts) <= words(" ".join(marked(chat))))
                # A link is underlined, too.
                assert words(" ".join(marked(chat))) <= words(parts) | {"Docs"}

    asyncio.run(body())


def words(text: str) -> set[str]:
    return set(text.split())


@pytest.mark.slow
def test_reasoning_is_searched_while_it_is_shown(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(["<think>A needle, a\nneedle.</think>The **needle**.", "No."])
        async with running_chat(script, tmp_path) as chat:
            await chat.ask("where?")
            await chat.ask("more?")
            await chat.press("ctrl+f", *"needle")
            await chat.until(lambda: count(chat) == "1 of 1" and marked(chat) == ["needle"])
            await chat.press("escape", "shift+tab", "up", "up", "enter", "ctrl+f")
            await chat.until(lambda: count(chat) == "3 of 3")
            await chat.until(lambda: marked(chat) == ["needle"] * 3)
            await chat.press("up")
            assert count(chat) == "2 of 3"
            # What it thought is folded up while the bar is open.
            await chat.pilot.click("ThoughtView")
            await chat.until(lambda: count(chat) == "1 of 1" and marked(chat) == ["needle"])
            # The origin view has the text as it was written.
            await chat.press("ctrl+t", *"**")
            chat.screen.query_one(FindBar).query_one("Input").value = "**needle**"
            await chat.until(lambda: count(chat) == "1 of 1" and marked(chat))
            await chat.press("ctrl+t")
            await chat.until(lambda: count(chat) == "nothing" and not marked(chat))

    asyncio.run(body())


def test_keys_of_the_bar_act_in_order(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.press("ctrl+f", *"abc")
            for key in ["backspace"] * 3 + [*"xyz"]:
                chat.app.post_message(events.Key(key, key if len(key) == 1 else None))
            await chat.pilot.pause(0.3)
            box = chat.screen.query_one(FindBar).query_one(Input)
            await chat.until(lambda: box.value == "xyz")

    asyncio.run(body())


def test_an_answer_that_ends_is_counted(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(["One pear.", "Two pears."]), tmp_path) as chat:
            await chat.ask("fruit?")
            await chat.press("ctrl+f", *"pear")
            await chat.until(lambda: count(chat) == "1 of 1")
            chat.screen.outbox.send("more?")
            await chat.until(lambda: count(chat) == "1 of 2")

    asyncio.run(body())


def test_another_conversation_or_variant_is_searched(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(["One pear.", "A pear, two pears."]), tmp_path) as chat:
            await chat.ask("fruit?")
            await chat.press("ctrl+r")
            await chat.wait_idle()
            chat.screen.search.open("pear")
            await chat.until(lambda: count(chat) == "2 of 2")
            chat.screen.switch.choose_variant(chat.screen.conversation.turns[1], -1)
            await chat.until(lambda: count(chat) == "1 of 1")
            await chat.press("ctrl+n")
            await chat.until(lambda: count(chat) == "nothing")
            chat.screen.switch.resume(chat.app.archive.latest() or "")
            await chat.until(lambda: count(chat) == "1 of 1")

    asyncio.run(body())


def test_a_long_conversation_is_read_beside_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last place is shown at once, while older turns are still being read."""
    monkeypatch.setattr(conversation_search, "_SLICE", 0.0)
    read = shown_texts.markdown_text
    waiting = True

    def held(source: str, ended: bool = True) -> str:
        assert not (waiting and source == "The first pear."), "the screen waits for old turns"
        return read(source, ended)

    async def body() -> None:
        nonlocal waiting
        script = Script(["The first pear.", *["None."] * 6, "The last pear."])
        async with running_chat(script, tmp_path, size=(80, 50)) as chat:
            for number in range(8):
                await chat.ask(f"question {number}")
            monkeypatch.setattr(shown_texts, "markdown_text", held)
            search = chat.screen.search
            chat.screen.query_one(FindBar).display = True
            search.find("pear")
            while not search.shown:
                await asyncio.sleep(0)
            assert search.shown.turn.content == "The last pear."
            assert count(chat) == "1 so far"
            # Behind the last place comes the first, which is not known yet.
            search.move(1)
            assert search.shown.turn.content == "The last pear."
            waiting = False
            await chat.until(lambda: count(chat) == "1 of 2")
            assert search.shown.turn.content == "The first pear."
            search.move(-1)
            assert count(chat) == "2 of 2"
            # It is not parsed again.
            waiting = True
            search.find("pea")
            await chat.until(lambda: search.pattern and count(chat) == "2 of 2")

    asyncio.run(body())


@given(st.lists(st.sampled_from(LINES), max_size=12), st.integers(12, 100))
def test_the_same_is_found_at_every_width(lines: list[str], width: int) -> None:
    text = "\n".join(lines)
    document = Document()
    document.append(text)
    document.finish()
    laid_out = BlockLayout(lambda code, _: Content(code)).lines(document.final, width)
    assert shown_text(laid_out).split() == markdown_text(text).split()


def test_places_are_found_however_they_are_written_and_wrapped() -> None:
    assert occurrences(pattern_of("one two"), "One two.\none  TWO") == 2
    assert occurrences(pattern_of("o.e"), "one o.e") == 1
    rows = [Line(Content("a one")), Line(Content("two b one"), separator=" ")]
    rows.append(Line(Content("> two"), prefix=2, separator=""))
    assert spans_by_row(rows, pattern_of("one two")) == {0: [Span(2, 5, 0)], 1: [Span(0, 3, 0)]}
    assert spans_by_row(rows, pattern_of("onetwo")) == {1: [Span(6, 9, 0)], 2: [Span(2, 5, 0)]}
    assert spans_by_row([], pattern_of("a")) == {}
