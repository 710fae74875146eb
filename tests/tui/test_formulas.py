"""Formulas in answers: what is shown, and copied, is what the model wrote."""

import pytest

from localspec_tui.markdown.block_parser import BlockParser
from localspec_tui.markdown.blocks import ListItem, Paragraph


def shown(text: str) -> list[str]:
    """The text of each block; of a list item with its marker."""
    found = []
    for _, block in BlockParser(text, ended=True).blocks():
        marker, inner = "", block
        if isinstance(block, ListItem):
            marker, inner = f"{block.marker} ", block.blocks[0]
        assert isinstance(inner, Paragraph)
        found.append(marker + inner.text.plain)
    return found


@pytest.mark.parametrize(
    "text",
    [
        r"The set \(\{x_1, x_2\}\) has \(2\,n\) members.",
        r"So \[ a \cdot b_{1} * c * d \] holds.",
        r"Then $$\{1\} \\ * 2 *$$ and on.",
        "\\[\na\n- b\n+ c\n> 0\n\\]",
        "$$\n\\begin{aligned}\n  a &= b \\\\\n  &= c\n\\end{aligned}\n$$",
        r"\[ x\\[4pt] \text{if } (a) \]",
        "\\[\na\n- b *not*\n* ended*",
    ],
)
def test_a_formula_is_shown_as_it_is_written(text: str) -> None:
    assert shown(text) == [text]


def test_text_around_formulas_is_markdown() -> None:
    assert shown(r"**So** \(a*b*c\) is *not* `\(d\)`.") == [r"So \(a*b*c\) is not \(d\)."]
    assert shown("So:\n\\[\na\n- b\n\\]\n- and") == ["So:", "\\[\na\n- b\n\\]", "• and"]
    assert shown("1. one\n   \\[\n   - a\n   \\]") == ["1. one"]
    assert shown("\\[\n- a\n\n- b\n\\]") == ["\\[\n- a", "• b\n]"]
    assert shown("- \\(a\\)\n- b") == ["• \\(a\\)", "• b"]


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        (r"\*no\* \{x\} \\(a\\) \(open", [r"*no* {x} \(a\) (open"]),
        ("it costs $5 or $6, \\$7 and $$", ["it costs $5 or $6, $7 and $$"]),
        ("$$ and\n- b", ["$$ and", "• b"]),
        (r"$$$$ and \(\)", [r"$$$$ and ()"]),
    ],
)
def test_what_is_no_formula_stays_markdown(text: str, blocks: list[str]) -> None:
    assert shown(text) == blocks
