"""Small things that are shown: encoding, code, sentences."""

import pytest
from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color

from localspec_tui import notes
from localspec_tui.code_blocks import last_code_block
from localspec_tui.encoding_filter import EncodingFilter
from localspec_tui.engine_events import Comparison
from localspec_tui.widgets.progress_line import bar


def shown(text: str, encoding: str = "ascii") -> str:
    segments = EncodingFilter(encoding).apply([Segment(text)], Color.parse("black"))
    return "".join(segment.text for segment in segments)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("plain", "plain"),
        ("╭─╮│╰╯", "+-+|++"),
        ("42.1 tok/s · 1.8\u00d7", "42.1 tok/s * 1.8x"),
        ("déjà…", "deja."),
        ("█░▊", "##|"),
        ("日本", "????"),
        ("▁▔▏▼▶←", "_-|v><"),
        ("\u2018so\u2019 \u2013 \u201cso\u201d", "'so' - \"so\""),
    ],
)
def test_a_terminal_without_unicode_sees_something_alike(text: str, plain: str) -> None:
    assert shown(text) == plain
    assert cell_len(shown(text)) == cell_len(text)


def test_what_the_terminal_knows_stays() -> None:
    assert shown("déjà · \u00d7", "latin-1") == "déjà · \u00d7"
    assert shown("╭日本😀", "utf-8") == "╭日本😀"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("no code", None),
        ("```python\na\n```\ntext\n```\nb\n\nc\n```\nend", "b\n\nc\n"),
        ("an open one\n```\na\nb", "a\nb"),
        ("indented:\n\n    x = 1\n", "x = 1\n"),
    ],
)
def test_the_last_block_of_code(message: str, code: str | None) -> None:
    assert last_code_block(message) == code


def test_a_comparison_in_words() -> None:
    assert notes.comparison(Comparison(20.0, 42.0, True, None)) == (
        "plain 20.0 tok/s · with drafts 42.0 tok/s (2.10x) · identical: yes"
    )
    assert notes.comparison(Comparison(0.0, 42.0, False, 6)) == (
        "plain 0.0 tok/s · with drafts 42.0 tok/s · identical: no, from token 7"
    )


@pytest.mark.parametrize(
    ("done", "total", "full"), [(0, 10, 0), (5, 10, 12), (10, 10, 24), (0, 0, 0)]
)
def test_a_bar(done: int, total: int, full: int) -> None:
    assert bar(done, total) == "█" * full + "░" * (24 - full)
