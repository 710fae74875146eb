"""The status line and the live panel."""

import asyncio
import re
from dataclasses import replace
from typing import Any

import pytest
from fakes.widget_pilot import WidgetPilot, showing
from rich.cells import cell_len

from localspec.conversation.events import Gauge
from localspec.stats import Seconds, Stats
from localspec_tui.status import Status, status_text
from localspec_tui.widgets.live_panel import LivePanel, SpeedSampler, accepted_lengths, sparkline
from localspec_tui.widgets.status_line import StatusLine

STATS = Stats(
    generated_tokens=421,
    steps=136,
    drafting_steps=120,
    drafted=400,
    accepted=284,
    widths=[5, 4],
    accepted_per_position=[120, 90, 50, 24],
    plain_tokens=421,
    seconds=Seconds(
        prompt=0.3, generate=10.0, draft=1.0, verify=7.0, first_token=0.31, plain=18.0188
    ),
)
HALF = Seconds(generate=0.5, plain=0.5)
STATUS = Status(STATS, Gauge(1204, 8192), ("suffix",), None, "answering")
OFF = STATUS._replace(draft=(), reason="vocabulary differs at token 151,643")


# The status line.


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (
            120,
            "42.1 tok/s · 1.8x plain · accept 71% (3.1 tok/step) · TTFT 0.31 s · ctx 1,204/8,192 "
            "· draft: suffix",
        ),
        (
            95,
            "42.1 tok/s · 1.8x plain · accept 71% · TTFT 0.31 s · ctx 1,204/8,192 · draft: suffix",
        ),
        (80, "42.1 tok/s · 1.8x plain · accept 71% · ctx 1,204/8,192 · draft: suffix"),
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
    seconds = replace(STATS.seconds, plain=None)
    stats = replace(STATS, drafted=0, accepted=0, seconds=seconds)
    assert status_text(OFF._replace(stats=stats), width) == line


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
            STATUS._replace(gauge=None, state="comparing"),
            "comparing · 42.1 tok/s · 1.8x plain · accept 71% (3.1 tok/step) · TTFT 0.31 s "
            "· draft: suffix",
        ),
        (
            STATUS._replace(stats=Stats(seconds=Seconds(generate=0.01)), state="reading"),
            "reading · ctx 1,204/8,192 · draft: suffix",
        ),
        (
            STATUS._replace(stats=Stats(generated_tokens=7, plain_tokens=7, steps=7, seconds=HALF)),
            "14.0 tok/s · ctx 1,204/8,192 · draft: suffix",
        ),
    ],
)
def test_the_status_line_leaves_out_what_is_not_known(status: Status, line: str) -> None:
    assert status_text(status, 120) == line


def rarely_drafted(**changed: Any) -> Stats:
    """An answer of 100 tokens at 0.5 ms per plain step, and a draft in 2 of its steps."""
    seconds = Seconds(generate=0.051, plain=0.05)
    found = Stats(100, generated_tokens=100, plain_tokens=100, steps=98, drafting_steps=2)
    found.seconds = seconds
    return replace(found, **changed)


@pytest.mark.parametrize(
    ("status", "field"),
    [
        (Status(rarely_drafted(), draft=("model",)), "none pays (target 0.5 ms/token)"),
        (Status(rarely_drafted(), draft=("suffix", "m")), "none pays (target 0.5 ms/token)"),
        (Status(rarely_drafted(seconds=Seconds(generate=0.1)), draft=("model",)), "none pays"),
        (Status(rarely_drafted(), draft=("suffix", "ngram")), "suffix or ngram (nothing to copy)"),
        (Status(rarely_drafted(steps=7), draft=("model",)), "model"),
        (Status(rarely_drafted(drafting_steps=20), draft=("model",)), "model"),
        (Status(rarely_drafted(seconds=replace(HALF, plain=0.6)), draft=("suffix",)), "suffix"),
        (Status(rarely_drafted(), draft=("another",), drafted=False), "another"),
        (Status(rarely_drafted(), reason="depth is 0"), "off (depth is 0)"),
    ],
)
def test_the_status_line_says_that_no_drafter_pays(status: Status, field: str) -> None:
    assert status_text(status, 120).endswith(f" · draft: {field}")


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
            panel.show(STATS, "suffix")
            await pilot.settle()
            rows = pilot.rows()
            assert rows[0].split() == ["speed", "█"]
            assert rows[1].strip() == "42.1 tok/s · plain 23.4"
            assert rows[2].split(maxsplit=1) == ["drafts", "suffix, depth 3"]
            assert rows[3].split(maxsplit=1) == ["time", "target 70% · draft 10% · host 20%"]
            shares = [re.findall(r"(\d)\s+█* (\d+)%", row) for row in rows[4:9]]
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
