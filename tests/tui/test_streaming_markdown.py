"""Streaming Markdown: however the text is cut, the result is that of the whole text."""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from fakes.markdown_texts import LINES, cut, document, tree
from fakes.widget_pilot import showing
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.content import Content
from textual.selection import SELECT_ALL

from localspec.utils.busy_cores import BusyCores
from localspec_tui.markdown import document as documents
from localspec_tui.markdown import highlighting
from localspec_tui.markdown.blocks import CodeBlock, Heading, ListItem, Paragraph, Table
from localspec_tui.markdown.document import Document
from localspec_tui.markdown.layout import BlockLayout
from localspec_tui.markdown.line import Line, folded
from localspec_tui.widgets import throttle
from localspec_tui.widgets.streaming_markdown import StreamingMarkdown
from localspec_tui.widgets.styled_text import StyledText
from localspec_tui.widgets.throttle import delay

CODE = "\n".join(f"    total += price[{number}]  # {number}" for number in range(400))


def read(*pieces: str) -> Document:
    pilot = Document()
    for piece in pieces:
        pilot.append(piece)
    pilot.finish()
    return pilot


def seen(lines: Iterator[Line]) -> list[object]:
    return [(tree(line.margin), tree(line.content), line.row_style, line.prefix) for line in lines]


@given(st.lists(st.sampled_from(LINES), max_size=12), st.integers())
def test_blocks_do_not_depend_on_how_the_text_was_cut(lines: list[str], seed: int) -> None:
    text = "\n".join(lines)
    assert tree(read(*cut(text, Random(seed))).final) == tree(read(text).final)


@given(st.text(alphabet="`~#*_->|[]() \n\ta1.:", max_size=60), st.integers())
def test_blocks_of_markup_characters_do_not_depend_on_how_the_text_was_cut(
    text: str, seed: int
) -> None:
    assert tree(read(*cut(text, Random(seed))).final) == tree(read(text).final)


@given(st.lists(st.sampled_from(LINES), max_size=12), st.integers())
def test_final_blocks_never_change(lines: list[str], seed: int) -> None:
    pilot, before = Document(), []
    for piece in cut("\n".join(lines), Random(seed)):
        pilot.append(piece)
        assert all(now is then for now, then in zip(pilot.final, before, strict=False))
        assert len(pilot.final) >= len(before)
        before = [*pilot.final]


@pytest.mark.slow
def test_forty_streamed_documents_look_like_whole_ones() -> None:
    async def body() -> None:
        for seed in range(40):
            random = Random(seed)
            text = document(random)
            streamed, whole = StreamingMarkdown(), StreamingMarkdown()
            async with showing(streamed, whole):
                whole.append(text)
                whole.finish()
                for piece in cut(text, random):
                    streamed.append(piece)
                    streamed.flush()
                streamed.finish()
                for width in (20, 76):
                    assert seen(streamed.lines(width)) == seen(whole.lines(width)), text
                assert streamed.source == text

    asyncio.run(body())


def test_partial_redraws_leave_the_screen_correct() -> None:
    """Only changed rows are drawn again."""

    async def body() -> None:
        for seed in range(3):
            random = Random(seed)
            text = document(random)[:600]
            streamed, whole = StreamingMarkdown(), StreamingMarkdown()
            async with (
                showing(streamed, size=(50, 60)) as pilot,
                showing(whole, size=(50, 60)) as other,
            ):
                written = ""
                for piece in cut(text, random):
                    written += piece
                    streamed.append(piece)
                    streamed.flush()
                    await pilot.settle()
                streamed.finish()
                await pilot.settle()
                whole.append(written)
                whole.finish()
                await other.settle()
                assert pilot.segments() == other.segments(), text

    asyncio.run(body())


def test_only_a_new_row_causes_a_layout() -> None:
    async def body() -> None:
        text, layouts = StyledText("begun"), list[object]()
        async with showing(text) as pilot:
            screen = pilot.app.screen
            screen.screen_layout_refresh_signal.subscribe(screen, layouts.append)
            for _ in range(5):
                text.append(" and more")
                text.flush()
                await pilot.settle()
            assert not layouts and pilot.rows()[0] == "begun" + " and more" * 5
            for row in range(1, 6):
                text.append("\nbelow")
                text.flush()
                await pilot.settle()
                assert len(layouts) == row and pilot.rows()[row] == "below"

    asyncio.run(body())


def test_each_kind_of_block_is_parsed() -> None:
    text = "# A\nb **c**\n- d\n- e\n\n```py x\nf\n```\n| g | h |\n|--:|---|\n| i | j |\n"
    heading, paragraph, first, second, code, table = read(text).final
    assert isinstance(heading, Heading) and heading.text.plain == "A"
    assert isinstance(paragraph, Paragraph) and paragraph.text.plain == "b c"
    assert isinstance(first, ListItem) and isinstance(second, ListItem)
    assert isinstance(code, CodeBlock) and (code.text, code.language) == ("f", "py")
    assert isinstance(table, Table) and table.aligns == ("right", "left")
    assert [cell.plain for row in (table.header, *table.rows) for cell in row] == [*"ghij"]


@pytest.mark.parametrize(
    "text",
    [
        "words\n#nospace",
        "words\n***bold*** words",
        "words\n``` x ``` words",
        "words\n| a | b |\n|--|-- no table",
        "words\n| a | b |\n|--|--|\n| c | d |\n``` x ``` a row\n",
        "- item\n**bold** still the item",
        "- item\n-no second one",
        "- item\n\n-no second one",
        "1. item\n2.5 words",
        "> quote\n***still*** the quote",
        "- item\n  ```py\n  code\n  ```\n- item\n\n  words\n\n      code",
        "~~~\n```\n~~\n~~~~ \nwords",
        "  ```\n  code\n    more\n ```\nwords",
    ],
)
def test_incomplete_lines_do_not_change_the_blocks(text: str) -> None:
    for size in (1, 2, 3):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert tree(read(*pieces).final) == tree(read(text).final)


def test_a_link_reference_may_be_defined_later() -> None:
    pilot = Document()
    pilot.append("see [that][1]\n\nwords\n\n")
    pilot.append("words\n\n[1]: http://x.y\n")
    first = pilot.final[0]
    assert pilot.finish()
    assert tree(pilot.final[0]) == tree(read("see [that](http://x.y)").final[0]) != tree(first)


def test_html_tags_are_shown_as_text() -> None:
    [paragraph] = read("a <b>c</b> Vec<String>").final
    assert isinstance(paragraph, Paragraph)
    assert paragraph.text.plain == "a <b>c</b> Vec<String>"


@pytest.fixture
def highlights(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The code of each call of `highlight`."""
    found: list[str] = []
    real = highlighting.highlight

    def counted(code: str, **how: Any) -> Content:
        found.append(code)
        return real(code, **how)

    monkeypatch.setattr(highlighting, "highlight", counted)
    highlighting.highlighted.cache_clear()
    return found


@pytest.mark.parametrize("indent", ["", "   "])
def test_code_is_highlighted_once_it_is_closed(highlights: list[str], indent: str) -> None:
    before = "1. Write:\n" if indent else "Write:\n"
    lines = [f"{indent}{line}\n" for line in ("```py", *CODE.splitlines())]

    async def body() -> None:
        markdown = StreamingMarkdown(before)
        async with showing(markdown) as pilot:
            for line in lines:
                markdown.append(line)
                markdown.flush()
            await pilot.settle()
            assert highlights == []
            plain = [line.content.plain for line in markdown.lines(76)]
            markdown.append(f"{indent}```\n")
            markdown.flush()
            await pilot.settle()
            for word in ("\nThat ", "is ", "all."):
                markdown.append(word)
                markdown.flush()
            markdown.finish()
            await pilot.settle()
            assert highlights == [CODE]
            assert [line.content.plain for line in markdown.lines(76)][: len(plain)] == plain

    asyncio.run(body())


def test_an_open_code_block_is_shown_without_its_fence() -> None:
    pilot = Document()
    for letter in "   ~~~ py\n   a\n     b\n  c\n\n~~":
        pilot.append(letter)
    [code] = pilot.open
    assert code == CodeBlock("a\n  b\nc", "py", unfinished=True, blank_before=False)


def test_an_open_code_block_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    real = documents.BlockParser
    monkeypatch.setattr(
        documents, "BlockParser", lambda text, **how: parsed.append(text) or real(text, **how)
    )
    pilot = Document()
    pilot.append("words\n\n```py\n")
    before = len(parsed)
    for line in CODE.splitlines():
        pilot.append(line)
        pilot.append("\n")
    assert len(parsed) == before
    assert [block.text for block in pilot.open if isinstance(block, CodeBlock)] == [CODE]


def test_unclosed_code_is_highlighted_at_the_end(highlights: list[str]) -> None:
    async def body() -> None:
        markdown = StreamingMarkdown("```py\nx = 1")
        async with showing(markdown) as pilot:
            assert highlights == []
            markdown.finish()
            await pilot.settle()
            assert highlights == ["x = 1"]

    asyncio.run(body())


def test_an_ansi_theme_has_its_own_styles() -> None:
    async def body() -> None:
        markdown = StreamingMarkdown("```py\nreturn 1\n```\n")
        async with showing(markdown) as pilot:
            markdown.finish()
            before = seen(markdown.lines(76))
            pilot.app.theme = "ansi-dark"
            await pilot.settle()
            assert seen(markdown.lines(76)) != before

    asyncio.run(body())


@given(st.lists(st.sampled_from(LINES), max_size=12), st.sampled_from([24, 40, 76]))
def test_lines_fit_the_width_and_keep_every_word(lines: list[str], width: int) -> None:
    pilot = read("\n".join(lines))
    layout = BlockLayout(lambda code, language: Content(code))
    rows = [*layout.lines(pilot.final, width)]
    for row in rows:
        assert cell_len(row.margin.plain + row.content.plain) <= width
    said = "".join(row.text(0, -1) for row in rows)
    for block in pilot.final:
        if isinstance(block, Paragraph | Heading):
            assert all(word in said for word in block.text.plain.split() if len(word) < 9)


@given(st.text("ab日\u0301\u200b☁\ufe0f", max_size=60), st.integers(2, 12))
def test_code_is_folded_without_loss(code: str, width: int) -> None:
    parts = [*folded(Content(code), width)]
    assert "".join(part.plain for part in parts) == code
    assert all(part.cell_length <= width for part in parts)


def test_control_characters_are_replaced() -> None:
    async def body() -> None:
        markdown = StreamingMarkdown()
        async with showing(markdown) as pilot:
            for piece in ("red \x1b[31m", " bell \x07\r", "\nnext\u2028line"):
                markdown.append(piece)
            markdown.finish()
            await pilot.settle()
            assert pilot.rows()[:2] == ["red \ufffd[31m bell \ufffd", "next\ufffdline"]
            assert markdown.source == "red \x1b[31m bell \x07\r\nnext\u2028line"

    asyncio.run(body())


def test_appended_text_is_shown_without_flush() -> None:
    async def body() -> None:
        markdown = StreamingMarkdown()
        markdown.append("early")
        async with showing(markdown) as pilot:
            assert pilot.rows()[0] == "early"
            markdown.append(" and")
            markdown.append(" late")
            await pilot.until(lambda: pilot.rows()[0] == "early and late")

    asyncio.run(body())


def test_only_links_to_pages_and_mail_are_opened() -> None:
    async def body() -> None:
        markdown = StreamingMarkdown("[page](http://x.y) [call](tel:123)")
        async with showing(markdown) as pilot:
            assert pilot.rows()[0] == "page (http://x.y) call (tel:123)"
            await pilot.pilot.click(markdown, offset=(1, 0))
            await pilot.pilot.click(markdown, offset=(20, 0))
            assert pilot.app.opened == ["http://x.y"]

    asyncio.run(body())


def test_selected_text_is_not_wrapped() -> None:
    async def body() -> None:
        markdown = StreamingMarkdown("- " + "word " * 30 + "\n\n```\n" + "x" * 100 + "\n\ny\n```\n")
        async with showing(markdown, size=(40, 24)):
            selected = markdown.get_selection(SELECT_ALL)
            assert selected
            assert selected[0] == ("word " * 30).strip() + "\n\n" + "x" * 100 + "\n\ny"

    asyncio.run(body())


@pytest.mark.parametrize(
    ("took", "wait", "without_idle_cores"),
    [(0.0, 0.05, 0.05), (0.004, 0.05, 0.4), (0.05, 0.15, 1.0), (0.1, 0.3, 1.0), (1.0, 3.0, 3.0)],
)
def test_slow_drawing_is_delayed(took: float, wait: float, without_idle_cores: float) -> None:
    assert delay(took, busy_share=0.5) == pytest.approx(wait)
    assert delay(took, busy_share=1.0) == pytest.approx(without_idle_cores)


def test_cores_that_other_programs_use_are_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process hardly computes meanwhile."""
    shares: list[float] = []
    monkeypatch.setattr(BusyCores, "share", lambda _self: 1.0)
    monkeypatch.setattr(throttle, "delay", lambda _took, share: shares.append(share) or 0.05)

    async def body() -> None:
        markdown = StreamingMarkdown()
        async with showing(markdown) as pilot:
            markdown.append("text")
            await pilot.until(lambda: shares == [1.0])

    asyncio.run(body())
