"""Markdown that is read while it is written is in the end what it would have been at once."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from fakes.markdown_texts import LINES, cut, document, tree
from fakes.widget_pilot import played, stage
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.content import Content
from textual.selection import SELECT_ALL

from localspec_tui.markdown import document as documents
from localspec_tui.markdown import highlighting
from localspec_tui.markdown.blocks import CodeBlock, Heading, ListItem, Paragraph, Table
from localspec_tui.markdown.document import Document
from localspec_tui.markdown.layout import BlockLayout
from localspec_tui.markdown.line import Line
from localspec_tui.widgets.streaming_markdown import StreamingMarkdown
from localspec_tui.widgets.styled_text import StyledText
from localspec_tui.widgets.throttle import delay

CODE = "\n".join(f"    total += price[{number}]  # {number}" for number in range(400))


def read(*pieces: str) -> Document:
    made = Document()
    for piece in pieces:
        made.append(piece)
    made.finish()
    return made


def seen(lines: Iterator[Line]) -> list[object]:
    return [(tree(line.margin), tree(line.content), line.row_style, line.prefix) for line in lines]


@given(st.lists(st.sampled_from(LINES), max_size=12), st.integers())
def test_blocks_do_not_depend_on_how_the_text_was_cut(lines: list[str], seed: int) -> None:
    text = "\n".join(lines)
    assert tree(read(*cut(text, Random(seed))).final) == tree(read(text).final)


@given(st.text(alphabet="`~#*_->|[]() \n\ta1.:", max_size=60), st.integers())
def test_nor_do_those_of_mere_marks(text: str, seed: int) -> None:
    assert tree(read(*cut(text, Random(seed))).final) == tree(read(text).final)


@given(st.lists(st.sampled_from(LINES), max_size=12), st.integers())
def test_what_is_done_stays_as_it_is(lines: list[str], seed: int) -> None:
    made, before = Document(), []
    for piece in cut("\n".join(lines), Random(seed)):
        made.append(piece)
        assert all(now is then for now, then in zip(made.final, before, strict=False))
        assert len(made.final) >= len(before)
        before = [*made.final]


def test_forty_documents_look_as_if_they_had_come_at_once() -> None:
    async def body() -> None:
        for seed in range(40):
            random = Random(seed)
            text = document(random)
            streamed, whole = StreamingMarkdown(), StreamingMarkdown()
            async with stage(streamed, whole):
                whole.append(text)
                whole.finish()
                for piece in cut(text, random):
                    streamed.append(piece)
                    streamed.flush()
                streamed.finish()
                for width in (20, 76):
                    assert seen(streamed.lines(width)) == seen(whole.lines(width)), text
                assert streamed.source == text

    played(body)


def test_the_screen_shows_every_change() -> None:
    """Only what has changed is drawn again."""

    async def body() -> None:
        for seed in range(3):
            random = Random(seed)
            text = document(random)[:600]
            streamed, whole = StreamingMarkdown(), StreamingMarkdown()
            async with stage(streamed, size=(50, 60)) as made, stage(whole, size=(50, 60)) as other:
                written = ""
                for piece in cut(text, random):
                    written += piece
                    streamed.append(piece)
                    streamed.flush()
                    await made.settle()
                streamed.finish()
                await made.settle()
                whole.append(written)
                whole.finish()
                await other.settle()
                assert made.segments() == other.segments(), text

    played(body)


def test_there_is_one_layout_for_each_row_and_none_without() -> None:
    async def body() -> None:
        text, layouts = StyledText("begun"), list[object]()
        async with stage(text) as made:
            screen = made.app.screen
            screen.screen_layout_refresh_signal.subscribe(screen, layouts.append)
            for _ in range(5):
                text.append(" and more")
                text.flush()
                await made.settle()
            assert not layouts and made.rows()[0] == "begun" + " and more" * 5
            for row in range(1, 6):
                text.append("\nbelow")
                text.flush()
                await made.settle()
                assert len(layouts) == row and made.rows()[row] == "below"

    played(body)


def test_everything_is_read_as_what_it_is() -> None:
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
def test_a_line_is_what_it_is_once_it_is_whole(text: str) -> None:
    for size in (1, 2, 3):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert tree(read(*pieces).final) == tree(read(text).final)


def test_a_reference_is_found_wherever_it_is_defined() -> None:
    made = Document()
    made.append("see [that][1]\n\nwords\n\n")
    made.append("words\n\n[1]: http://x.y\n")
    first = made.final[0]
    assert made.finish()
    assert tree(made.final[0]) == tree(read("see [that](http://x.y)").final[0]) != tree(first)


def test_tags_and_types_stay_to_be_seen() -> None:
    [paragraph] = read("a <b>c</b> Vec<String>").final
    assert isinstance(paragraph, Paragraph)
    assert paragraph.text.plain == "a <b>c</b> Vec<String>"


@pytest.fixture
def highlights(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The code that was highlighted, each time."""
    found: list[str] = []
    real = highlighting.highlight

    def counted(code: str, **how: Any) -> Content:
        found.append(code)
        return real(code, **how)

    monkeypatch.setattr(highlighting, "highlight", counted)
    highlighting.highlighted.cache_clear()
    return found


@pytest.mark.parametrize("indent", ["", "   "])
def test_code_is_highlighted_once_and_only_when_it_is_whole(
    highlights: list[str], indent: str
) -> None:
    before = "1. Write:\n" if indent else "Write:\n"
    lines = [f"{indent}{line}\n" for line in ("```py", *CODE.splitlines())]

    async def body() -> None:
        markdown = StreamingMarkdown(before)
        async with stage(markdown) as made:
            for line in lines:
                markdown.append(line)
                markdown.flush()
            await made.settle()
            assert highlights == []
            plain = [line.content.plain for line in markdown.lines(76)]
            markdown.append(f"{indent}```\n")
            markdown.flush()
            await made.settle()
            for word in ("\nThat ", "is ", "all."):
                markdown.append(word)
                markdown.flush()
            markdown.finish()
            await made.settle()
            assert highlights == [CODE]
            assert [line.content.plain for line in markdown.lines(76)][: len(plain)] == plain

    played(body)


def test_open_code_is_seen_as_it_will_be() -> None:
    made = Document()
    for letter in "   ~~~ py\n   a\n     b\n  c\n\n~~":
        made.append(letter)
    [code] = made.open
    assert code == CodeBlock("a\n  b\nc", "py", unfinished=True, blank_before=False)


def test_open_code_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    real = documents.BlockParser
    monkeypatch.setattr(
        documents, "BlockParser", lambda text, **how: parsed.append(text) or real(text, **how)
    )
    made = Document()
    made.append("words\n\n```py\n")
    before = len(parsed)
    for line in CODE.splitlines():
        made.append(line)
        made.append("\n")
    assert len(parsed) == before
    assert [block.text for block in made.open if isinstance(block, CodeBlock)] == [CODE]


def test_code_that_never_ends_is_highlighted_at_the_end(highlights: list[str]) -> None:
    async def body() -> None:
        markdown = StreamingMarkdown("```py\nx = 1")
        async with stage(markdown) as made:
            assert highlights == []
            markdown.finish()
            await made.settle()
            assert highlights == ["x = 1"]

    played(body)


def test_a_theme_of_the_terminals_own_colours_has_its_own_styles() -> None:
    async def body() -> None:
        markdown = StreamingMarkdown("```py\nreturn 1\n```\n")
        async with stage(markdown) as made:
            markdown.finish()
            before = seen(markdown.lines(76))
            made.app.theme = "ansi-dark"
            await made.settle()
            assert seen(markdown.lines(76)) != before

    played(body)


@given(st.lists(st.sampled_from(LINES), max_size=12), st.sampled_from([24, 40, 76]))
def test_nothing_goes_beyond_the_edge_or_gets_lost(lines: list[str], width: int) -> None:
    made = read("\n".join(lines))
    layout = BlockLayout(lambda code, language: Content(code))
    rows = [*layout.lines(made.final, width)]
    for row in rows:
        assert cell_len(row.margin.plain + row.content.plain) <= width
    said = "".join(row.text(0, -1) for row in rows)
    for block in made.final:
        if isinstance(block, Paragraph | Heading):
            assert all(word in said for word in block.text.plain.split() if len(word) < 9)


def test_what_would_move_the_cursor_is_only_seen() -> None:
    async def body() -> None:
        markdown = StreamingMarkdown()
        async with stage(markdown) as made:
            for piece in ("red \x1b[31m", " bell \x07\r", "\nnext\u2028line"):
                markdown.append(piece)
            markdown.finish()
            await made.settle()
            assert made.rows()[:2] == ["red \ufffd[31m bell \ufffd", "next\ufffdline"]
            assert markdown.source == "red \x1b[31m bell \x07\r\nnext\u2028line"

    played(body)


def test_pieces_show_by_themselves_before_and_after_it_is_mounted() -> None:
    async def body() -> None:
        markdown = StreamingMarkdown()
        markdown.append("early")
        async with stage(markdown) as made:
            assert made.rows()[0] == "early"
            markdown.append(" and")
            markdown.append(" late")
            await made.until(lambda: made.rows()[0] == "early and late")

    played(body)


def test_links_open_pages_and_nothing_else() -> None:
    async def body() -> None:
        markdown = StreamingMarkdown("[page](http://x.y) [call](tel:123)")
        async with stage(markdown) as made:
            assert made.rows()[0] == "page (http://x.y) call (tel:123)"
            await made.pilot.click(markdown, offset=(1, 0))
            await made.pilot.click(markdown, offset=(20, 0))
            assert made.app.opened == ["http://x.y"]

    played(body)


def test_selected_text_is_that_of_the_source() -> None:
    async def body() -> None:
        markdown = StreamingMarkdown("- " + "word " * 30 + "\n\n```\n" + "x" * 100 + "\n\ny\n```\n")
        async with stage(markdown, size=(40, 24)):
            selected = markdown.get_selection(SELECT_ALL)
            assert selected
            assert selected[0] == ("word " * 30).strip() + "\n\n" + "x" * 100 + "\n\ny"

    played(body)


@pytest.mark.parametrize(
    ("took", "wait", "without_idle_cores"),
    [(0.0, 0.05, 0.05), (0.01, 0.05, 0.24), (0.05, 0.15, 0.3), (0.1, 0.3, 0.3), (1.0, 3.0, 3.0)],
)
def test_slow_drawing_is_done_less_often(
    took: float, wait: float, without_idle_cores: float
) -> None:
    assert delay(took, cpu_share=0.5) == pytest.approx(wait)
    assert delay(took, cpu_share=1.0) == pytest.approx(without_idle_cores)
