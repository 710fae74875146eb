"""The progress line and turn views."""

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.scripted import Script
from fakes.widget_pilot import showing

from localspec.conversation.events import Ended, Event, Gauge, Piece
from localspec.conversation.session import Session
from localspec.conversation.turns import Turn
from localspec.stats import Stats
from localspec_tui.origins import Origins
from localspec_tui.widgets.progress_line import bar
from localspec_tui.widgets.turn_entry import TurnEntry

# The progress line.


@pytest.mark.parametrize(
    ("done", "total", "full"), [(0, 10, 0), (5, 10, 12), (10, 10, 24), (0, 0, 0)]
)
def test_the_bar_is_filled_up_to_the_share(done: int, total: int, full: int) -> None:
    assert bar(done, total) == "█" * full + "░" * (24 - full)


# Turns.


def answered(answer: str, question: str = "Question?") -> tuple[Session, list[Event]]:
    session = Session(Script(answers=[answer]).load())
    return session, [*session.send(question)]


def feed(entry: TurnEntry, events: list[Event]) -> None:
    for event in events:
        if isinstance(event, Piece):
            entry.origins.append(event.said, event.token.origin)
            entry.append(event)
        elif isinstance(event, Ended):
            entry.origins.append_rest(event.said)
            entry.end(event)


def test_pieces_that_come_late_change_nothing() -> None:
    async def body() -> None:
        session, events = answered("Hello **there**.\n\n- one\n- two")
        done = TurnEntry(session.turns[-1])
        async with showing(done.make_view()) as pilot:
            expected = pilot.rows()
            assert expected[:5] == [row and f"  {row}" for row in
                                    ("Answer", "Hello there.", "", "• one", "• two")]  # fmt: skip
            feed(done, events)
            await pilot.settle()
            assert pilot.rows() == expected

    asyncio.run(body())


def test_a_growing_answer_is_shown() -> None:
    async def body() -> None:
        turn = Turn("assistant", "what is ")
        entry = TurnEntry(turn)
        async with showing(entry.make_view()) as pilot:
            assert pilot.rows()[1] == "  what is"
            turn.content += "there"
            entry.append(piece("there"))
            await pilot.until(lambda: pilot.rows()[1] == "  what is there")
            turn.stop_reason = "cancelled"
            entry.end(Ended(turn, "cancelled", "", "", Stats(), Gauge(1, 2)))
            await pilot.settle()
            assert pilot.rows()[2] == "  stopped"

    asyncio.run(body())


def piece(said: str = "", thought: str = "") -> Piece:
    token: Any = SimpleNamespace(origin="plain")
    return Piece(token, said, thought, Gauge(1, 2))


def test_an_answer_that_ends_before_its_view_is_mounted_is_shown_whole() -> None:
    async def body() -> None:
        session, events = answered("Use `ls`:\n```sh\nls -lS\n```")
        whole = session.turns[-1]
        turn = Turn("assistant", whole.content.removesuffix("```"), key=whole.key)
        entry = TurnEntry(turn)
        turn.content, turn.stop_reason = whole.content, whole.stop_reason
        async with showing(entry.make_view(), TurnEntry(whole).make_view()) as pilot:
            feed(entry, events)
            await pilot.settle()
            rows = pilot.rows()
            assert rows[:3] == ["  Answer", "  Use ls:", "  ▏ ls -lS"]
            assert rows[4:7] == rows[:3] and not rows[3]

    asyncio.run(body())


def test_a_growing_thought_is_shown_and_then_folded_up() -> None:
    async def body() -> None:
        turn = Turn("assistant", "")
        entry = TurnEntry(turn)
        async with showing(entry.make_view()) as pilot:
            for thought in ("First this,\n", "then ", "that."):
                turn.thought += thought
                entry.append(piece(thought=thought))
            await pilot.until(lambda: "that." in "".join(pilot.rows()))
            assert re.fullmatch(r"  ▼ thinking for \d+\.\d s, 3 tokens", pilot.rows()[1])
            assert pilot.rows()[2:4] == ["    First this,", "    then that."]
            turn.content = "So."
            entry.append(piece("So."))
            await pilot.until(lambda: pilot.rows()[2] == "  So.")
            folded = pilot.rows()[1]
            assert re.fullmatch(r"  ▶ thought for \d+\.\d s, 3 tokens", folded)
            entry.view.focus()
            await pilot.pilot.press("enter")
            await pilot.settle()
            opened = [row.removeprefix("▎").strip() for row in pilot.rows()[1:4]]
            assert opened == [folded.strip().replace("▶", "▼"), "First this,", "then that."]

    asyncio.run(body())


def test_a_finished_thought_is_folded_up() -> None:
    async def body() -> None:
        entry = TurnEntry(Turn("assistant", "So.", thought="a\nb", stop_reason="eos"))
        async with showing(entry.make_view()) as pilot:
            assert pilot.rows()[:3] == ["  Answer", "  ▶ thought, 2 lines", "  So."]

    asyncio.run(body())


@pytest.mark.parametrize(
    ("reason", "mark"),
    [
        ("eos", ""),
        ("stop", ""),
        ("cancelled", "stopped"),
        (
            "interrupted",
            "interrupted: Ctrl-R answers again, or E, Enter and Ctrl-G go on from here",
        ),
        ("length", "cut off: the limit of tokens is reached"),
        ("context", "cut off: the context is full"),
    ],
)
def test_an_incomplete_answer_shows_its_stop_reason(reason: str, mark: str) -> None:
    async def body() -> None:
        async with showing(
            TurnEntry(Turn("assistant", "text", stop_reason=reason)).make_view()
        ) as pilot:
            assert pilot.rows()[2].strip() == mark

    asyncio.run(body())


def test_variants_are_numbered() -> None:
    async def body() -> None:
        turn = Turn("assistant", "text", stop_reason="eos")
        async with showing(
            TurnEntry(turn, variant=(2, 3)).make_view(), TurnEntry(turn).make_view()
        ) as pilot:
            assert [row.strip() for row in pilot.rows() if "Answer" in row] == [
                "Answer 2/3",
                "Answer",
            ]

    asyncio.run(body())


def test_a_user_turn_is_plain_text() -> None:
    async def body() -> None:
        text = "# no heading\n  * x[i] *= 2\n\n\tend \x1b[0m"
        async with showing(TurnEntry(Turn("user", text)).make_view()) as pilot:
            assert pilot.rows()[:5] == [
                "  You",
                "  # no heading",
                "    * x[i] *= 2",
                "",
                "      end \ufffd[0m",
            ]

    asyncio.run(body())


def test_the_origin_view_replaces_the_text_and_back() -> None:
    async def body() -> None:
        session, events = answered("Some *words* to draft.")
        turn = session.turns[-1]
        entry, old = TurnEntry(turn), TurnEntry(Turn("assistant", "old", stop_reason="eos"))
        async with showing(entry.make_view(), old.make_view()) as pilot:
            feed(entry, events)
            before = pilot.rows()
            for each in (entry, old):
                each.show_origins(True)
            await pilot.settle()
            rows = pilot.rows()
            assert [*entry.origins.counts][:2] == ["suffix", "corrected"]
            assert rows[1] == "  Some *words* to draft."
            assert "  old" in rows
            assert entry.origins.latest_drafter == "suffix" and old.origins.latest_drafter is None
            for each in (entry, old):
                each.show_origins(False)
            await pilot.settle()
            assert pilot.rows() == before

    asyncio.run(body())


def test_saved_origins_are_shown() -> None:
    async def body() -> None:
        turn = Turn("assistant", "a *b*", stop_reason="eos")
        entry = TurnEntry(turn, origins=Origins.of([("a ", "lookup"), ("*b*", "plain")]))
        entry.show_origins(True)
        async with showing(entry.make_view()) as pilot:
            assert pilot.rows()[1].strip() == "a *b*"
            assert entry.origins.names == ["lookup", "plain"]

    asyncio.run(body())


def test_a_long_answer_is_one_widget() -> None:
    async def body() -> None:
        text = "".join(f"Paragraph {number} with *words*.\n\n" for number in range(3000))
        entry = TurnEntry(Turn("assistant", text, stop_reason="eos"))
        async with showing(entry.make_view()) as pilot:
            assert len([*entry.view.query("*")]) < 6
            pilot.app.query_one("VerticalScroll").scroll_end(animate=False)
            await pilot.settle()
            assert "  Paragraph 2999 with words." in pilot.rows()

    asyncio.run(body())
