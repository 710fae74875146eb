"""Texts in Markdown of many kinds, and what was read of them."""

from collections.abc import Sequence
from dataclasses import fields
from random import Random

from textual.content import Content

from localspec_tui.markdown.blocks import Block

LINES = [
    "# Heading", "## *Emphasized* heading", "### Third `code`", "Plain words, one two three.",
    "**bold** start", "*it* and _it_ and ~~gone~~", "`code` first", "a  \nhard break", "b\\",
    "- item", "- item **two**", "* star item", "+ plus", "1. one", "2. two", "10. ten", "1) paren",
    "- [ ] task", "   - nested", "     deep text", "   text under", " - one space in", "-", "1.",
    "> quote", "> - item in a quote", "> > deeper", "> ---", "lazy text", "```", "```py", "``` x",
    "````", "~~~", "~~~~ js", "   ```", "``", "``` x ``` y", "def f(x):", "    return x  # code",
    "\tafter a tab", "---", "***", "===", "| a | b |", "|---|:-:|", "| 1 | **2** |", "| x", "|-|",
    "[ref]: http://x.y/z", "[text][ref] here", "[ref]", "[ref]:", "<div>", "<b>x</b> and Vec<T>",
    "https://example.com goes", "[link](http://a.b 'title')", "![image](a.png)", "&amp; \\#",
    "😀 emoji 👩‍👩‍👧 日本語のテキスト、とても長い行。", "long " * 40, "#nospace", "#", "_", "|",
    "\\[", "\\]", "$$", "$$ a_1 * b_2 * c $$", "\\[ 1 * 2 *", "so \\(\\{a\\}\\) *is*",
    "\\] and *on*",
    "", "", "", "", "",
]  # fmt: skip


def document(random: Random) -> str:
    """Lines that belong together or not, and between them blank ones."""
    return "\n".join(random.choice(LINES) for _ in range(random.randrange(3, 30)))


def cut(text: str, random: Random) -> list[str]:
    """Into pieces of random sizes, most of them small."""
    pieces = []
    while text:
        size = random.choice([1, 1, 2, 3, 5, 9, 20, 60])
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def tree(found: object) -> object:
    """Blocks as types, texts and styles."""
    if isinstance(found, Content):
        return found.plain, tuple(found.spans)
    if isinstance(found, Block):
        return type(found).__name__, *(tree(getattr(found, each.name)) for each in fields(found))
    if isinstance(found, Sequence) and not isinstance(found, str):
        return tuple(map(tree, found))
    return found
