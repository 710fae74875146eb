"""The status line, the live panel, the progress line and turn views."""

import asyncio
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.scripted import Script
from fakes.widget_pilot import WidgetPilot, showing
from rich.cells import cell_len

from localspec.conversation.events import Ended, Event, Gauge, Piece
from localspec.conversation.session import Session
from localspec.conversation.turns import Turn
from localspec.stats import Seconds, Stats
from localspec_tui.widgets.live_panel import LivePanel, SpeedSampler, accepted_lengths, sparkline
from localspec_tui.widgets.progress_line import bar
from localspec_tui.widgets.status_line import Status, StatusLine, status_text
from localspec_tui.widgets.turn_view import TurnView

STATS = Stats(
    generated_tokens=421,
    steps=136,
    drafted=400,
    accepted=284,
    widths=[5, 4],
    accepted_per_position=[120, 90, 50, 24],
    seconds=Seconds(prompt=0.3, generate=10.0, draft=1.0, verify=7.0, first_token=0.31),
)
STATUS = Status(STATS, Gauge(1204, 8192), 0.0428, ("suffix",), None, "answering")
OFF = STATUS._replace(draft=(), reason="vocabulary differs at token 151,643")


# The status line.


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (
            120,
            "42.1 tok/s · 1.8x plain · accept 71 % (3.1 tok/step) · TTFT 0.31 s · ctx 1,204/8,192 "
            "· draft: suffix",
        ),
        (80, "42.1 tok/s · 1.8x plain · ctx 1,204/8,192 · draft: suffix"),
        (60, "42.1 tok/s · 1.8x plain · ctx 1,204/8,192 · draft: suffix"),
        (40, "42.1 tok/s · draft: suffix"),
        (20, "42.1 tok/s"),
        (3, ""),
    ],
)
def test_the_status_line_leaves_out_the_least_important_fields(width: int, line: str) -> None:
    assert status_text(STATUS, width) == line


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (
            120,
            "42.1 tok/s · TTFT 0.31 s · ctx 1,204/8,192 · draft: off (vocabulary differs at token "
            "151,643)",
        ),
        (80, "42.1 tok/s · ctx 1,204/8,192 · draft: off (vocabulary differs at token 151,643)"),
        (70, "42.1 tok/s · draft: off (vocabulary differs at token 151,643)"),
        (60, "42.1 tok/s · draft: off (vocabulary differs at token 151,64…"),
        (40, "42.1 tok/s · draft: off (vocabulary dif…"),
    ],
)
def test_the_status_line_says_why_nothing_drafts(width: int, line: str) -> None:
    stats = replace(STATS, drafted=0, accepted=0)
    assert status_text(OFF._replace(stats=stats, plain_seconds=None), width) == line


@pytest.mark.parametrize("width", range(1, 130))
def test_the_status_line_fits_any_width(width: int) -> None:
    for status in (STATUS, OFF, STATUS._replace(gauge=Gauge(8192, 8192), state="reading")):
        assert cell_len(status_text(status, width)) <= width


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (Status(), "draft: off"),
        (Status(state="no model"), "no model · draft: off"),
        (Status(stats=Stats(), gauge=Gauge(0, 8192)), "ctx 0/8,192 · draft: off"),
        (Status(draft=("suffix", "draft-model")), "draft: suffix or draft-model"),
        (
            STATUS._replace(plain_seconds=None, gauge=None, state="reading"),
            "reading · 42.1 tok/s · accept 71 % (3.1 tok/step) · TTFT 0.31 s · draft: suffix",
        ),
    ],
)
def test_the_status_line_leaves_out_what_is_not_known(status: Status, line: str) -> None:
    assert status_text(status, 120) == line


def test_a_context_warning_is_more_important_than_the_drafter() -> None:
    assert (
        status_text(STATUS._replace(gauge=Gauge(6554, 8192)), 30) == "42.1 tok/s · ctx 6,554/8,192"
    )
    assert status_text(STATUS._replace(gauge=Gauge(6553, 8192)), 30) == "42.1 tok/s · draft: suffix"
    assert status_text(STATUS._replace(gauge=Gauge(8192, 8192)), 22) == "ctx 8,192/8,192 full"


def look(pilot: WidgetPilot, part: str) -> Any:
    """The style of a part of the screen."""
    found = [each for row in pilot.segments() for each in row if part in each.text]
    assert found, pilot.rows()
    return found[0].style


def test_a_context_warning_has_its_own_style() -> None:
    async def body() -> None:
        line = StatusLine()
        async with showing(line) as pilot:
            styles = []
            for used in (6000, 7000, 8192):
                line.show(STATUS._replace(gauge=Gauge(used, 8192)))
                await pilot.settle()
                styles.append(look(pilot, f"ctx {used:,}"))
            calm, warned, full = styles
            assert not calm.bold and warned.bold and full.underline
            assert calm.color != warned.color
            assert not look(pilot, "suffix").bold

    asyncio.run(body())


# The live panel.


def test_accepted_lengths_count_all_steps() -> None:
    assert accepted_lengths(STATS) == [16, 30, 40, 26, 24]
    assert sum(accepted_lengths(STATS)) == STATS.steps
    lengths = enumerate(accepted_lengths(STATS))
    assert sum(length * count for length, count in lengths) == STATS.accepted
    assert accepted_lengths(Stats(steps=7)) == [7]


def test_a_sparkline_shows_the_latest_samples() -> None:
    assert sparkline([], 5) == ""
    assert sparkline([0.0, 0.0], 5) == "▁▁"
    assert sparkline([9.0, 0.0, 3.5, 7.0], 3) == "▁▄█"


def test_the_speed_sampler_measures_since_the_last_sample() -> None:
    sampler, stats = SpeedSampler(), Stats()
    for tokens, seconds in [(10, 1.0), (10, 1.0), (40, 2.0)]:
        stats.generated_tokens, stats.seconds.generate = tokens, seconds
        sampler.sample(stats)
    assert sampler.samples == [10.0, 30.0]
    sampler.sample(Stats(generated_tokens=5, seconds=Seconds(generate=1.0)))
    assert sampler.samples == [5.0]


def test_the_live_panel_shows_times_and_accepted_lengths() -> None:
    async def body() -> None:
        panel = LivePanel()
        async with showing(panel, size=(60, 24)) as pilot:
            assert pilot.rows()[0] == "nothing was generated yet"
            panel.show(STATS, 0.05, "suffix")
            await pilot.settle()
            rows = pilot.rows()
            assert rows[0].split() == ["speed", "█"]
            assert rows[1].strip() == "42.1 tok/s · plain 20.0"
            assert rows[2].split(maxsplit=1) == ["drafts", "suffix, depth 3"]
            assert rows[3].split(maxsplit=1) == ["time", "target 70 % · draft 10 % · host 20 %"]
            shares = [re.findall(r"(\d)\s+█* (\d+) %", row) for row in rows[4:9]]
            assert shares == [[("0", "12")], [("1", "22")], [("2", "29")], [("3", "19")],
                              [("4", "18")]]  # fmt: skip

    asyncio.run(body())


@pytest.mark.parametrize("width", [12, 36, 60, 118])
def test_the_live_panel_fits_any_width(width: int) -> None:
    panel = LivePanel()
    panel.show(replace(STATS, accepted_per_position=[9] * 20), None)
    rows = panel.rows(width)
    assert len(rows) <= 14
    if width >= 36:
        assert all(cell_len(row) <= width for row in rows)


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


def feed(view: TurnView, events: list[Event]) -> None:
    for event in events:
        if isinstance(event, Piece):
            view.append(event)
        elif isinstance(event, Ended):
            view.end(event)


def test_pieces_that_come_late_change_nothing() -> None:
    async def body() -> None:
        session, events = answered("Hello **there**.\n\n- one\n- two")
        done = TurnView(session.turns[-1])
        async with showing(done) as pilot:
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
        view = TurnView(turn)
        async with showing(view) as pilot:
            assert pilot.rows()[1] == "  what is"
            turn.content += "there"
            view.append(piece("there"))
            await pilot.until(lambda: pilot.rows()[1] == "  what is there")
            turn.stop_reason = "cancelled"
            view.end(Ended(turn, "cancelled", "", "", Stats(), Gauge(1, 2)))
            await pilot.settle()
            assert pilot.rows()[2] == "  stopped"

    asyncio.run(body())


def piece(said: str = "", thought: str = "") -> Piece:
    token: Any = SimpleNamespace(origin="plain")
    return Piece(token, said, thought, Gauge(1, 2))


def test_a_growing_thought_is_shown_and_then_folded_up() -> None:
    async def body() -> None:
        turn = Turn("assistant", "")
        view = TurnView(turn)
        async with showing(view) as pilot:
            for thought in ("First this,\n", "then ", "that."):
                turn.thought += thought
                view.append(piece(thought=thought))
            await pilot.until(lambda: "that." in "".join(pilot.rows()))
            assert re.fullmatch(r"  ▼ thinking for \d+\.\d s, 3 tokens", pilot.rows()[1])
            assert pilot.rows()[2:4] == ["    First this,", "    then that."]
            turn.content = "So."
            view.append(piece("So."))
            await pilot.until(lambda: pilot.rows()[2] == "  So.")
            folded = pilot.rows()[1]
            assert re.fullmatch(r"  ▶ thought for \d+\.\d s, 3 tokens", folded)
            view.focus()
            await pilot.pilot.press("enter")
            await pilot.settle()
            opened = [row.removeprefix("▎").strip() for row in pilot.rows()[1:4]]
            assert opened == [folded.strip().replace("▶", "▼"), "First this,", "then that."]

    asyncio.run(body())


def test_a_finished_thought_is_folded_up() -> None:
    async def body() -> None:
        view = TurnView(Turn("assistant", "So.", thought="a\nb", stop_reason="eos"))
        async with showing(view) as pilot:
            assert pilot.rows()[:3] == ["  Answer", "  ▶ thought, 2 lines", "  So."]

    asyncio.run(body())


@pytest.mark.parametrize(
    ("reason", "mark"),
    [
        ("eos", ""),
        ("stop", ""),
        ("cancelled", "stopped"),
        ("interrupted", "interrupted"),
        ("length", "cut off: as long as it may be"),
        ("context", "cut off: the context is full"),
    ],
)
def test_an_incomplete_answer_shows_its_stop_reason(reason: str, mark: str) -> None:
    async def body() -> None:
        async with showing(TurnView(Turn("assistant", "text", stop_reason=reason))) as pilot:
            assert pilot.rows()[2].strip() == mark

    asyncio.run(body())


def test_variants_are_numbered() -> None:
    async def body() -> None:
        turn = Turn("assistant", "text", stop_reason="eos")
        async with showing(TurnView(turn, variant=(2, 3)), TurnView(turn)) as pilot:
            assert [row.strip() for row in pilot.rows() if "Answer" in row] == [
                "Answer 2/3",
                "Answer",
            ]

    asyncio.run(body())


def test_a_user_turn_is_plain_text() -> None:
    async def body() -> None:
        text = "# no heading\n  * x[i] *= 2\n\n\tend \x1b[0m"
        async with showing(TurnView(Turn("user", text))) as pilot:
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
        view, old = TurnView(turn), TurnView(Turn("assistant", "old", stop_reason="eos"))
        async with showing(view, old) as pilot:
            feed(view, events)
            before = pilot.rows()
            for each in (view, old):
                each.show_origins(True)
            await pilot.settle()
            rows = pilot.rows()
            assert re.fullmatch(r"  suffix \d+ · corrected \d+.*", rows[1])
            assert rows[3] == "  Some *words* to draft."
            assert "  old" in rows
            assert view.latest_drafter == "suffix" and old.latest_drafter is None
            for each in (view, old):
                each.show_origins(False)
            await pilot.settle()
            assert pilot.rows() == before

    asyncio.run(body())


def test_saved_origins_are_shown() -> None:
    async def body() -> None:
        turn = Turn("assistant", "a *b*", stop_reason="eos")
        view = TurnView(turn, origins=[("a ", "lookup"), ("*b*", "plain")])
        view.show_origins(True)
        async with showing(view) as pilot:
            assert [row.strip() for row in pilot.rows()[1:4]] == ["lookup · plain", "", "a *b*"]

    asyncio.run(body())


def test_a_long_answer_is_one_widget() -> None:
    async def body() -> None:
        text = "".join(f"Paragraph {number} with *words*.\n\n" for number in range(3000))
        view = TurnView(Turn("assistant", text, stop_reason="eos"))
        async with showing(view) as pilot:
            assert len([*view.query("*")]) < 6
            pilot.app.query_one("VerticalScroll").scroll_end(animate=False)
            await pilot.settle()
            assert "  Paragraph 2999 with words." in pilot.rows()

    asyncio.run(body())
