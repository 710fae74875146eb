"""Encoding filter: similar characters of the same width for terminals without Unicode."""

import pytest
from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color

from localspec_tui.encoding_filter import EncodingFilter


def filtered(text: str, encoding: str = "ascii") -> str:
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
def test_missing_characters_are_replaced_by_similar_ones(text: str, plain: str) -> None:
    assert filtered(text) == plain
    assert cell_len(filtered(text)) == cell_len(text)


def test_characters_of_the_encoding_stay() -> None:
    assert filtered("déjà · \u00d7", "latin-1") == "déjà · \u00d7"
    assert filtered("╭日本😀", "utf-8") == "╭日本😀"
