"""Layout: blocks as lines of a given width."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from textual.content import Content

from localspec_tui.markdown.blocks import (
    Block,
    CodeBlock,
    Heading,
    HorizontalRule,
    ListItem,
    Paragraph,
    Quote,
    Table,
)
from localspec_tui.markdown.line import Line, folded, wrapped
from localspec_tui.markdown.table_layout import table_lines

# Blocks nested too deeply for the width go beyond its edge.
_MIN_WIDTH = 12
_TAB = 4
_CODE_EDGE = Content.styled("▏ ", ".markdown--edge")
_QUOTE_EDGE = Content.styled("▎ ", ".markdown--edge")

# Takes code and its language, and returns the code with styles.
Highlight = Callable[[str, str], Content]


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """highlight: is not called for an unfinished code block."""

    highlight: Highlight

    def lines(
        self, blocks: Iterable[Block], width: int, after: Block | None = None
    ) -> Iterator[Line]:
        """Lay out blocks in a width of cells. after: the block above them; None at the top."""
        for block in blocks:
            if after is not None and (block.blank_before or isinstance(block, Heading)):
                yield Line()
            yield from self._block(block, max(width, _MIN_WIDTH))
            after = block

    def _block(self, block: Block, width: int) -> Iterator[Line]:
        match block:
            case Paragraph(text):
                yield from wrapped(text, width)
            case Heading(level, text):
                style = f".markdown--h{min(level, 3)}"
                yield from wrapped(text.stylize_before(style), width)
            case CodeBlock():
                yield from self._code(block, width)
            case ListItem(marker, blocks):
                yield from self._item(marker, blocks, width)
            case Quote(blocks):
                inner = self.lines(blocks, width - _QUOTE_EDGE.cell_length)
                yield from (line.indented(_QUOTE_EDGE) for line in inner)
            case Table():
                yield from table_lines(block, width)
            case HorizontalRule():
                yield Line(Content.styled("─" * width, ".markdown--dim"), columns=())

    def _item(self, marker: str, blocks: Sequence[Block], width: int) -> Iterator[Line]:
        first = Content.styled(f"{marker} ", ".markdown--marker")
        others = Content(" " * first.cell_length)
        inner = [*self.lines(blocks, width - first.cell_length)] or [Line()]
        for number, line in enumerate(inner):
            yield line.indented(others if number else first, is_marker=not number)

    def _code(self, code: CodeBlock, width: int) -> Iterator[Line]:
        text = code.text.expandtabs(_TAB)
        content = Content(text) if code.unfinished else self.highlight(text, code.language)
        for line in content.split(allow_blank=True):
            for number, part in enumerate(folded(line, width - _CODE_EDGE.cell_length)):
                separator = "" if number else "\n"
                yield Line(
                    _CODE_EDGE + part,
                    len(_CODE_EDGE),
                    row_style="markdown--code",
                    separator=separator,
                )
