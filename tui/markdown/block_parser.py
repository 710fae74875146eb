"""Block parser: from Markdown to blocks."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from textual.content import Content

from localspec_tui.markdown.blocks import (
    Align,
    Block,
    CodeBlock,
    Heading,
    HorizontalRule,
    ListItem,
    Paragraph,
    Quote,
    Table,
)
from localspec_tui.markdown.formulas import keep_formulas
from localspec_tui.markdown.inline import inline

# HTML tags are shown as they are written. Without them, `Vec<String>` would lose its type.
_PARSER = keep_formulas(MarkdownIt("gfm-like", {"html": False}))
_BULLETS = ("•", "◦")
_ALIGNS: dict[str, Align] = {"text-align:center": "center", "text-align:right": "right"}


class LocatedBlock(NamedTuple):
    """first_line: the line of the source where the block starts, from 0."""

    first_line: int
    block: Block


class BlockParser:
    """Parses one text, once. ended: whether the text is complete.

    has_references: whether the text defines link references, which earlier blocks may use.
    """

    def __init__(self, text: str, *, ended: bool) -> None:
        environment: dict[str, Any] = {}
        self._tokens = iter(_PARSER.parse(text, environment))
        self._lines = text.split("\n")
        # The number of lines, without blank lines at the end.
        self._line_count = len(text.rstrip().split("\n"))
        self._ended = ended
        self.has_references = bool(environment.get("references"))

    def blocks(self, depth: int = 0) -> Iterator[LocatedBlock]:
        """The blocks up to the end of the text or of the enclosing block; each list item is one.

        depth: how many lists enclose the blocks.
        """
        for token in self._tokens:
            if token.nesting < 0:
                return
            if token.type in ("bullet_list_open", "ordered_list_open"):
                yield from self._items(depth)
            else:
                yield LocatedBlock(_lines(token)[0], self._block(token, depth))

    def _nested(self, depth: int) -> tuple[Block, ...]:
        return tuple(each.block for each in self.blocks(depth))

    def _items(self, depth: int) -> Iterator[LocatedBlock]:
        for token in self._tokens:
            if token.nesting < 0:
                return
            number = token.info and token.info + token.markup
            marker = number or _BULLETS[depth % len(_BULLETS)]
            item = ListItem(
                marker, self._nested(depth + 1), blank_before=self._is_after_blank(token)
            )
            yield LocatedBlock(_lines(token)[0], item)

    def _block(self, token: Token, depth: int) -> Block:
        blank_before = self._is_after_blank(token)
        match token.type:
            case "heading_open":
                return Heading(int(token.tag[1:]), self._text(), blank_before=blank_before)
            case "blockquote_open":
                return Quote(self._nested(depth), blank_before=blank_before)
            case "fence" | "code_block":
                return self._code(token)
            case "table_open":
                return self._table(blank_before)
            case "hr":
                return HorizontalRule(blank_before=blank_before)
            case _:
                return Paragraph(self._text(), blank_before=blank_before)

    def _is_after_blank(self, token: Token) -> bool:
        start, _ = _lines(token)
        # In a quote, a blank line still has the marks of the quote.
        return start > 0 and not self._lines[start - 1].strip(" >\t")

    def _text(self) -> Content:
        text = inline(next(self._tokens))
        next(self._tokens)
        return text

    def _code(self, token: Token) -> CodeBlock:
        start, end = _lines(token)
        code_lines = token.content.removesuffix("\n").count("\n") + bool(token.content)
        closed = token.type == "code_block" or end - start == code_lines + 2
        return CodeBlock(
            token.content.rstrip("\n"),
            "".join(token.info.split(maxsplit=1)[:1]),
            unfinished=not (closed or self._ended) and end >= self._line_count,
            blank_before=self._is_after_blank(token),
        )

    def _table(self, blank_before: bool) -> Table:
        rows: list[list[Content]] = []
        aligns: list[Align] = []
        for token in self._tokens:
            if token.type == "table_close":
                break
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "th_open":
                aligns.append(_ALIGNS.get(str(token.attrs.get("style")), "left"))
            elif token.type == "inline":
                rows[-1].append(inline(token))
        header, *others = (tuple(row) for row in rows)
        return Table(header, tuple(others), tuple(aligns), blank_before=blank_before)


def _lines(token: Token) -> tuple[int, int]:
    """The first line of a token, and the line after its last."""
    start, end = token.map or (0, 0)
    return start, end
