"""Every token can be told by where it is from, and all of them make the text."""

from itertools import combinations, pairwise

import pytest
from fakes.scripted import Script
from fakes.widget_pilot import Stage, played, stage
from hypothesis import given
from hypothesis import strategies as st

from localspec.conversation.events import Ended, Piece
from localspec.conversation.session import Session
from localspec_tui.origins import Origins
from localspec_tui.widgets.origin_view import OriginView
from localspec_tui.widgets.turn_view import TurnView

ORIGINS = ["suffix", "pycode-4m-q4_0", "corrected", "bonus", "plain"]
TOKENS = st.lists(st.tuples(st.text(max_size=4), st.sampled_from(ORIGINS)), max_size=40)
WORDS = [("def ", "plain"), ("f", "suffix"), ("(", "corrected"), ("n", "bonus"), (")", "lookup")]


@given(TOKENS)
def test_runs_make_the_text(tokens: list[tuple[str, str]]) -> None:
    origins = Origins()
    for text, origin in tokens:
        origins.append(text, origin)
    assert "".join(text for text, _ in origins.segments) == "".join(text for text, _ in tokens)
    assert all(before != after for (_, before), (_, after) in pairwise(origins.segments))
    assert all(text for text, _ in origins.segments)
    assert sum(origins.counts.values()) == len(tokens)
    assert Origins.of(origins.segments).segments == origins.segments


@pytest.mark.parametrize("answer", ["one two three four five", "<think>first\n</think>then this"])
def test_as_many_drafted_tokens_are_shown_as_the_statistics_count(answer: str) -> None:
    async def body() -> None:
        session = Session(Script(answers=[answer], names=["suffix", "lookup"]).load())
        events = [*session.send("go on")]
        turn = session.turns[-1]
        view = TurnView(turn)
        view.show_origins(True)
        async with stage(view) as made:
            for event in events:
                if isinstance(event, Piece):
                    view.append(event)
                elif isinstance(event, Ended):
                    view.end(event)
            await made.settle()
            origins = view.query_one(OriginView).origins
            stats = events[-1].stats  # type: ignore[union-attr]
            assert origins.drafted == stats.accepted > 0
            assert sum(origins.counts.values()) == stats.generated_tokens
            assert "".join(text for text, _ in origins.segments) == turn.content
        session.close()

    played(body)


def attributes(made: Stage) -> dict[str, tuple[object, ...]]:
    """How each word looks, but for its colour."""
    [row] = [row for row in made.segments() if "".join(each.text for each in row)[:4] == "def "]
    styles = {each.text: each.style for each in row if each.text.strip() and each.style}
    return {
        text.strip(): (style.bold, style.italic, style.underline, style.dim)
        for text, style in styles.items()
    }


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light", "ansi-dark"])
def test_origins_differ_without_colours(monkeypatch: pytest.MonkeyPatch, theme: str) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def body() -> None:
        view = OriginView(Origins.of(WORDS))
        async with stage(view) as made:
            made.app.theme = theme
            await made.settle()
            looks = attributes(made)
            assert [*looks] == ["def", "f", "(", "n", ")"]
            kinds = [looks[text] for text in ("def", "f", "(", "n")]
            assert all(a != b for a, b in combinations(kinds, 2))
            assert looks[")"] == looks["f"]

    played(body)


def test_the_legend_names_what_there_is_and_counts_it() -> None:
    async def body() -> None:
        view = OriginView(Origins.of([("a", "suffix"), ("b", "plain")]))
        async with stage(view) as made:
            assert made.rows()[0] == "suffix · plain"
            view.set_segments([])
            for text, origin in [*WORDS, ("", "suffix"), ("!", "plain")]:
                view.append(text, origin)
            await made.until(lambda: made.rows()[2] == "def f(n)!")
            assert made.rows()[0] == "suffix 2 · lookup 1 · corrected 1 · bonus 1 · plain 2"

    played(body)


def test_finished_lines_are_laid_out_once() -> None:
    async def body() -> None:
        view = OriginView()
        async with stage(view):
            for number in range(300):
                view.append(f"line {number}\n", ORIGINS[number % 5])
            view.finish()
            [_, text] = view.children
            before = [*text.lines(70)]  # type: ignore[attr-defined]
            for _ in range(50):
                view.append("more ", "suffix")
            view.finish()
            after = [*text.lines(70)]  # type: ignore[attr-defined]
            assert len(before) == 300 and len(after) > 300
            assert all(now is then for now, then in zip(after, before, strict=False))

    played(body)
