"""A message, the status line and the live panel say what there is to say, in the room there is."""

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.scripted import Script
from fakes.widget_pilot import Stage, played, stage
from rich.cells import cell_len

from localspec.conversation.events import Ended, Event, Gauge, Piece
from localspec.conversation.session import Session
from localspec.conversation.turns import Turn
from localspec.stats import Seconds, Stats
from localspec_tui.widgets.live_panel import LivePanel, SpeedSampler, accepted_lengths, sparkline
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
def test_what_does_not_fit_goes_the_least_important_first(width: int, line: str) -> None:
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
def test_that_nothing_drafts_is_never_silent(width: int, line: str) -> None:
    stats = replace(STATS, drafted=0, accepted=0)
    assert status_text(OFF._replace(stats=stats, plain_seconds=None), width) == line


@pytest.mark.parametrize("width", range(1, 130))
def test_the_line_never_is_too_long(width: int) -> None:
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
def test_what_is_not_known_is_left_out(status: Status, line: str) -> None:
    assert status_text(status, 120) == line


def test_a_context_that_fills_matters_more_than_what_drafts() -> None:
    assert (
        status_text(STATUS._replace(gauge=Gauge(6554, 8192)), 30) == "42.1 tok/s · ctx 6,554/8,192"
    )
    assert status_text(STATUS._replace(gauge=Gauge(6553, 8192)), 30) == "42.1 tok/s · draft: suffix"
    assert status_text(STATUS._replace(gauge=Gauge(8192, 8192)), 22) == "ctx 8,192/8,192 full"


def look(made: Stage, part: str) -> Any:
    """The style of a part of the screen."""
    found = [each for row in made.segments() for each in row if part in each.text]
    assert found, made.rows()
    return found[0].style


def test_a_context_that_fills_looks_different() -> None:
    async def body() -> None:
        line = StatusLine()
        async with stage(line) as made:
            styles = []
            for used in (6000, 7000, 8192):
                line.show(STATUS._replace(gauge=Gauge(used, 8192)))
                await made.settle()
                styles.append(look(made, f"ctx {used:,}"))
            calm, warned, full = styles
            assert not calm.bold and warned.bold and full.underline
            assert calm.color != warned.color
            assert not look(made, "suffix").bold

    played(body)


# The live panel.


def test_accepted_lengths_of_all_steps() -> None:
    assert accepted_lengths(STATS) == [16, 30, 40, 26, 24]
    assert sum(accepted_lengths(STATS)) == STATS.steps
    lengths = enumerate(accepted_lengths(STATS))
    assert sum(length * count for length, count in lengths) == STATS.accepted
    assert accepted_lengths(Stats(steps=7)) == [7]


def test_a_sparkline_of_the_latest() -> None:
    assert sparkline([], 5) == ""
    assert sparkline([0.0, 0.0], 5) == "▁▁"
    assert sparkline([9.0, 0.0, 3.5, 7.0], 3) == "▁▄█"


def test_the_pulse_is_the_speed_since_the_last_look() -> None:
    sampler, stats = SpeedSampler(), Stats()
    for tokens, seconds in [(10, 1.0), (10, 1.0), (40, 2.0)]:
        stats.generated_tokens, stats.seconds.generate = tokens, seconds
        sampler.sample(stats)
    assert sampler.samples == [10.0, 30.0]
    sampler.sample(Stats(generated_tokens=5, seconds=Seconds(generate=1.0)))
    assert sampler.samples == [5.0]


def test_the_panel_shows_where_time_goes_and_what_was_accepted() -> None:
    async def body() -> None:
        panel = LivePanel()
        async with stage(panel, size=(60, 24)) as made:
            assert made.rows()[0] == "nothing was generated yet"
            panel.show(STATS, 0.05, "suffix")
            await made.settle()
            rows = made.rows()
            assert rows[0].split() == ["speed", "█"]
            assert rows[1].strip() == "42.1 tok/s · plain 20.0"
            assert rows[2].split(maxsplit=1) == ["drafts", "suffix, depth 3"]
            assert rows[3].split(maxsplit=1) == ["time", "target 70 % · draft 10 % · host 20 %"]
            shares = [re.findall(r"(\d)\s+█* (\d+) %", row) for row in rows[4:9]]
            assert shares == [[("0", "12")], [("1", "22")], [("2", "29")], [("3", "19")],
                              [("4", "18")]]  # fmt: skip

    played(body)


@pytest.mark.parametrize("width", [12, 36, 60, 118])
def test_the_panel_fits(width: int) -> None:
    panel = LivePanel()
    panel.show(replace(STATS, accepted_per_position=[9] * 20), None)
    rows = panel.rows(width)
    assert len(rows) <= 14
    if width >= 36:
        assert all(cell_len(row) <= width for row in rows)


# Messages.


def answered(answer: str, question: str = "Question?") -> tuple[Session, list[Event]]:
    session = Session(Script(answers=[answer]).load())
    return session, [*session.send(question)]


def feed(view: TurnView, events: list[Event]) -> None:
    for event in events:
        if isinstance(event, Piece):
            view.append(event)
        elif isinstance(event, Ended):
            view.end(event)


def test_an_answer_is_shown_however_late_its_pieces_come() -> None:
    async def body() -> None:
        session, events = answered("Hello **there**.\n\n- one\n- two")
        done = TurnView(session.turns[-1])
        async with stage(done) as made:
            expected = made.rows()
            assert expected[:5] == [row and f"  {row}" for row in
                                    ("Answer", "Hello there.", "", "• one", "• two")]  # fmt: skip
            feed(done, events)
            await made.settle()
            assert made.rows() == expected

    played(body)


def test_a_growing_answer_shows_what_there_is() -> None:
    async def body() -> None:
        turn = Turn("assistant", "what is ")
        view = TurnView(turn)
        async with stage(view) as made:
            assert made.rows()[1] == "  what is"
            turn.content += "there"
            view.append(piece("there"))
            await made.until(lambda: made.rows()[1] == "  what is there")
            turn.stop_reason = "cancelled"
            view.end(Ended(turn, "cancelled", "", "", Stats(), Gauge(1, 2)))
            await made.settle()
            assert made.rows()[2] == "  stopped"

    played(body)


def piece(said: str = "", thought: str = "") -> Piece:
    token: Any = SimpleNamespace(origin="plain")
    return Piece(token, said, thought, Gauge(1, 2))


def test_thoughts_are_shown_as_they_come_and_folded_up_after() -> None:
    async def body() -> None:
        turn = Turn("assistant", "")
        view = TurnView(turn)
        async with stage(view) as made:
            for thought in ("First this,\n", "then ", "that."):
                turn.thought += thought
                view.append(piece(thought=thought))
            await made.until(lambda: "that." in "".join(made.rows()))
            assert re.fullmatch(r"  ▼ thinking for \d+\.\d s, 3 tokens", made.rows()[1])
            assert made.rows()[2:4] == ["    First this,", "    then that."]
            turn.content = "So."
            view.append(piece("So."))
            await made.until(lambda: made.rows()[2] == "  So.")
            folded = made.rows()[1]
            assert re.fullmatch(r"  ▶ thought for \d+\.\d s, 3 tokens", folded)
            view.focus()
            await made.pilot.press("enter")
            await made.settle()
            opened = [row.removeprefix("▎").strip() for row in made.rows()[1:4]]
            assert opened == [folded.strip().replace("▶", "▼"), "First this,", "then that."]

    played(body)


def test_an_old_thought_is_folded_up() -> None:
    async def body() -> None:
        view = TurnView(Turn("assistant", "So.", thought="a\nb", stop_reason="eos"))
        async with stage(view) as made:
            assert made.rows()[:3] == ["  Answer", "  ▶ thought, 2 lines", "  So."]

    played(body)


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
def test_an_answer_that_was_cut_short_says_so(reason: str, mark: str) -> None:
    async def body() -> None:
        async with stage(TurnView(Turn("assistant", "text", stop_reason=reason))) as made:
            assert made.rows()[2].strip() == mark

    played(body)


def test_variants_are_numbered() -> None:
    async def body() -> None:
        turn = Turn("assistant", "text", stop_reason="eos")
        async with stage(TurnView(turn, variant=(2, 3)), TurnView(turn)) as made:
            assert [row.strip() for row in made.rows() if "Answer" in row] == [
                "Answer 2/3",
                "Answer",
            ]

    played(body)


def test_what_a_person_wrote_is_shown_as_it_is() -> None:
    async def body() -> None:
        text = "# no heading\n  * x[i] *= 2\n\n\tend \x1b[0m"
        async with stage(TurnView(Turn("user", text))) as made:
            assert made.rows()[:5] == [
                "  You",
                "  # no heading",
                "    * x[i] *= 2",
                "",
                "      end \ufffd[0m",
            ]

    played(body)


def test_origins_in_place_of_the_text_and_back() -> None:
    async def body() -> None:
        session, events = answered("Some *words* to draft.")
        turn = session.turns[-1]
        view, old = TurnView(turn), TurnView(Turn("assistant", "old", stop_reason="eos"))
        async with stage(view, old) as made:
            feed(view, events)
            before = made.rows()
            for each in (view, old):
                each.show_origins(True)
            await made.settle()
            rows = made.rows()
            assert re.fullmatch(r"  suffix \d+ · corrected \d+.*", rows[1])
            assert rows[3] == "  Some *words* to draft."
            assert "  old" in rows
            assert view.latest_drafter == "suffix" and old.latest_drafter is None
            for each in (view, old):
                each.show_origins(False)
            await made.settle()
            assert made.rows() == before

    played(body)


def test_origins_that_were_kept() -> None:
    async def body() -> None:
        turn = Turn("assistant", "a *b*", stop_reason="eos")
        view = TurnView(turn, origins=[("a ", "lookup"), ("*b*", "plain")])
        view.show_origins(True)
        async with stage(view) as made:
            assert [row.strip() for row in made.rows()[1:4]] == ["lookup · plain", "", "a *b*"]

    played(body)


def test_a_long_answer_is_one_widget() -> None:
    async def body() -> None:
        text = "".join(f"Paragraph {number} with *words*.\n\n" for number in range(3000))
        view = TurnView(Turn("assistant", text, stop_reason="eos"))
        async with stage(view) as made:
            assert len([*view.query("*")]) < 6
            made.app.query_one("VerticalScroll").scroll_end(animate=False)
            await made.settle()
            assert "  Paragraph 2999 with words." in made.rows()

    played(body)
