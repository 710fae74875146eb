r"""Formulas: LaTeX between \( and \), \[ and \], or $$ and $$ stays as it is written.

To Markdown a backslash before punctuation is an escape, and would be lost.
"""

import re

from markdown_it import MarkdownIt
from markdown_it.ruler import RuleOptionsType
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

FORMULA = "formula"
# What ends a formula, by what begins it.
_ENDS = {
    "\\(": re.compile(r"(?<!\\)\\\)"),
    "\\[": re.compile(r"(?<!\\)\\\]"),
    "$$": re.compile(r"\$\$"),
}
# The first line of a formula of several lines.
_DISPLAYED = re.compile(r"\\\[|\$\$[ \t]*(?:\n|$)")


def keep_formulas(parser: MarkdownIt) -> MarkdownIt:
    """Let a parser make a token of each formula; of one on lines of its own, in a paragraph."""
    parser.inline.ruler.before("escape", FORMULA, _inline)
    interrupts: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    parser.block.ruler.before("fence", FORMULA, _block, interrupts)
    return parser


def _inline(state: StateInline, silent: bool) -> bool:
    """The rule for a formula at `pos` of the text of a block."""
    start = state.pos
    ends = _ENDS.get(state.src[start : start + 2])
    found = ends.search(state.src, start + 2, state.posMax) if ends else None
    if found and found.start() > start + 2:
        end = found.end()
    elif start == 0 and not found and _DISPLAYED.match(state.src) and "\n" in state.src:
        end = state.posMax
    else:
        return False
    state.pos = end
    if not silent:
        state.push(FORMULA, "", 0).content = state.src[start : state.pos]
    return True


def _block(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    """The rule for a formula of several lines, in which nothing begins a list or a quote.

    It ends before a blank line at the latest, so that its first line alone says what it is: the
    rest may be still to come.
    """
    opening = _line(state, first)
    if not _DISPLAYED.match(opening) or state.is_code_block(first):
        return False
    ends = _ENDS[opening[:2]]
    if ends.search(opening, 2):
        return False
    if not silent:
        last = first + 1
        while last < end and not state.isEmpty(last) and state.sCount[last] >= state.blkIndent:
            last += 1
            if ends.search(_line(state, last - 1)):
                break
        _push_paragraph(state, first, last)
    return True


def _line(state: StateBlock, number: int) -> str:
    start = state.bMarks[number] + state.tShift[number]
    return state.src[start : state.eMarks[number]]


def _push_paragraph(state: StateBlock, first: int, end: int) -> None:
    state.line = end
    lines = [first, end]
    state.push("paragraph_open", "p", 1).map = lines
    text = state.push("inline", "", 0)
    text.content = state.getLines(first, end, state.blkIndent, False).strip()
    text.map, text.children = lines, []
    state.push("paragraph_close", "p", -1)
