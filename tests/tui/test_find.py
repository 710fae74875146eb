"""Finding a text in a conversation."""

import asyncio
from pathlib import Path

from fakes.pilot import ChatPilot, running_chat, screen_segments
from fakes.scripted import Script

from localspec.conversation.turns import Turn
from localspec_tui.found_text import Span, hits, pattern_of, spans_by_row
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

    asyncio.run(body())


def test_the_origin_view_is_searched_and_letters_stay_in_the_bar(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script([LONG]), tmp_path) as chat:
            await chat.ask("many")
            await chat.press("ctrl+t", "ctrl+f", *"graph 7 of")
            await chat.until(lambda: count(chat) == "1 of 1" and "Paragraph 7 of" in chat.text)
            assert chat.screen.composer.text == ""

    asyncio.run(body())


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


def test_places_are_found_however_they_are_written_and_wrapped() -> None:
    turns = [Turn("user", "One two.\none  TWO"), Turn("assistant", "no"), Turn("user", "o.e")]
    assert [(each.turn, each.number) for each in hits(turns, pattern_of("one two"))] == [
        (turns[0], 0),
        (turns[0], 1),
    ]
    assert [each.turn for each in hits(turns, pattern_of("o.e"))] == [turns[2]]
    rows = [("\n", "a one"), (" ", "two b one"), ("", "two")]
    assert spans_by_row(rows, pattern_of("one two")) == {0: [Span(2, 5, 0)], 1: [Span(0, 3, 0)]}
    assert spans_by_row(rows, pattern_of("onetwo")) == {1: [Span(6, 9, 0)], 2: [Span(0, 3, 0)]}
    assert spans_by_row([], pattern_of("a")) == {}
