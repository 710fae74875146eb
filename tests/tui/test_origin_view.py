"""Origins: segments, counts, styles and the legend of the origin view."""

import asyncio
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from fakes.pilot import running_chat
from fakes.scripted import Script
from fakes.widget_pilot import WidgetPilot, showing
from hypothesis import given
from hypothesis import strategies as st

from localspec.conversation.events import Ended, Piece
from localspec.conversation.session import Session
from localspec_tui.origins import Origins
from localspec_tui.widgets.origin_view import OriginLegend, OriginView
from localspec_tui.widgets.turn_entry import TurnEntry

ORIGINS = ["suffix", "terminal-5m-q4_0", "corrected", "bonus", "plain"]
TOKENS = st.lists(st.tuples(st.text(max_size=4), st.sampled_from(ORIGINS)), max_size=40)
WORDS = [("def ", "plain"), ("f", "suffix"), ("(", "corrected"), ("n", "bonus"), (")", "lookup")]


@given(TOKENS)
def test_segments_joined_are_the_text(tokens: list[tuple[str, str]]) -> None:
    origins = Origins()
    for text, origin in tokens:
        origins.append(text, origin)
    assert "".join(text for text, _ in origins.segments) == "".join(text for text, _ in tokens)
    assert all(before != after for (_, before), (_, after) in pairwise(origins.segments))
    assert all(text for text, _ in origins.segments)
    assert sum(origins.counts.values()) == len(tokens)
    assert Origins.of(origins.segments).segments == origins.segments


@pytest.mark.parametrize("answer", ["one two three four five", "<think>first\n</think>then this"])
def test_the_view_shows_as_many_drafted_tokens_as_the_stats_count(answer: str) -> None:
    async def body() -> None:
        session = Session(Script(answers=[answer], names=["suffix", "lookup"]).load())
        events = [*session.send("go on")]
        turn = session.turns[-1]
        entry = TurnEntry(turn)
        entry.show_origins(True)
        async with showing(entry.make_view()) as pilot:
            for event in events:
                if isinstance(event, Piece):
                    entry.origins.append(event.said, event.token.origin)
                    entry.append(event)
                elif isinstance(event, Ended):
                    entry.origins.append_rest(event.said)
                    entry.end(event)
            await pilot.settle()
            origins = entry.origins
            stats = events[-1].stats  # type: ignore[union-attr]
            assert origins.drafted == stats.accepted > 0
            assert sum(origins.counts.values()) == stats.generated_tokens
            assert "".join(text for text, _ in origins.segments) == turn.content
        session.close()

    asyncio.run(body())


def attributes(pilot: WidgetPilot) -> dict[str, tuple[object, ...]]:
    """The style of each word without its colour."""
    [row] = [row for row in pilot.segments() if "".join(each.text for each in row)[:4] == "def "]
    styles = {each.text: each.style for each in row if each.text.strip() and each.style}
    return {
        text.strip(): (style.bold, style.italic, style.underline, style.dim)
        for text, style in styles.items()
    }


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light", "ansi-dark"])
def test_origins_differ_without_colours(monkeypatch: pytest.MonkeyPatch, theme: str) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def body() -> None:
        view = OriginView(WORDS)
        async with showing(view) as pilot:
            pilot.app.theme = theme
            await pilot.settle()
            looks = attributes(pilot)
            assert [*looks] == ["def", "f", "(", "n", ")"]
            kinds = [looks[text] for text in ("def", "f", "(", "n")]
            assert all(a != b for a, b in combinations(kinds, 2))
            assert looks[")"] == looks["f"]

    asyncio.run(body())


def test_the_legend_names_and_counts_the_origins() -> None:
    async def body() -> None:
        legend, origins = OriginLegend(), Origins()
        async with showing(legend) as pilot:
            legend.show(Origins.of([("a", "suffix"), ("b", "plain")]))
            await pilot.until(lambda: pilot.rows()[0].strip() == "suffix · plain")
            for text, origin in [*WORDS, ("", "suffix"), ("!", "plain")]:
                origins.append(text, origin)
            legend.show(origins)
            counts = "suffix 2 · lookup 1 · corrected 1 · bonus 1 · plain 2"
            await pilot.until(lambda: pilot.rows()[0].strip() == counts)

    asyncio.run(body())


def test_the_legend_stays_in_sight_under_a_long_answer(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(["line\n\n" * 60]), tmp_path, size=(60, 20)) as chat:
            await chat.ask("go on")
            assert "corrected" not in chat.text
            await chat.press("ctrl+t")
            await chat.until(lambda: "corrected" in chat.text and "suffix" in chat.text)
            chat.screen.view.scroll_home(animate=False)
            await chat.pilot.pause()
            assert "corrected" in chat.text

    asyncio.run(body())


def test_the_legend_counts_the_variant_that_is_shown_again(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(["One answer.", "And another."]), tmp_path) as chat:
            await chat.ask("go on")
            first = chat.screen.view.last_turn.origins.counts.copy()
            await chat.press("ctrl+r")
            await chat.wait_idle()
            chat.screen.switch.choose_variant(chat.screen.conversation.turns[1], -1)
            await chat.wait_idle()
            shown = chat.screen.view.last_turn
            assert shown.text == "One answer." and shown.origins.counts == first
            assert first["suffix"] > 0

    asyncio.run(body())


def test_final_lines_are_laid_out_once() -> None:
    async def body() -> None:
        view = OriginView()
        async with showing(view):
            for number in range(300):
                view.append(f"line {number}\n", ORIGINS[number % 5])
            view.finish()
            [text] = view.children
            before = [*text.lines(70)]  # type: ignore[attr-defined]
            for _ in range(50):
                view.append("more ", "suffix")
            view.finish()
            after = [*text.lines(70)]  # type: ignore[attr-defined]
            assert len(before) == 300 and len(after) > 300
            assert all(now is then for now, then in zip(after, before, strict=False))

    asyncio.run(body())
