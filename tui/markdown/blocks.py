"""Blocks: the block elements of Markdown."""

from dataclasses import dataclass
from typing import Literal

from textual.content import Content

Align = Literal["left", "center", "right"]
Row = tuple[Content, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """blank_before: whether a blank line comes before the block."""

    blank_before: bool


@dataclass(frozen=True, slots=True)
class Heading(Block):
    """level: 1 is the highest."""

    level: int
    text: Content


@dataclass(frozen=True, slots=True)
class Paragraph(Block):
    """text: keeps the line breaks of the source."""

    text: Content


@dataclass(frozen=True, slots=True)
class CodeBlock(Block):
    """language: as written in the source; may be empty. unfinished: whether more may follow."""

    text: str
    language: str
    unfinished: bool


@dataclass(frozen=True, slots=True)
class Quote(Block):
    """A block quote."""

    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class ListItem(Block):
    """marker: the bullet or the number."""

    marker: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Table(Block):
    """aligns: one for each column. Every row has as many cells as the header."""

    header: Row
    rows: tuple[Row, ...]
    aligns: tuple[Align, ...]


@dataclass(frozen=True, slots=True)
class HorizontalRule(Block):
    """A line across the page."""
