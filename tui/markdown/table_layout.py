"""Table layout: a table as lines of a given width."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from textual.content import Content

from localspec_tui.markdown.blocks import Align, Row, Table
from localspec_tui.markdown.line import Cell, Line, wrapped

_GAP = Content.styled(" │ ", ".markdown--dim")
_CROSS = "─┼─"
_MIN_WIDTH = 3


def table_lines(table: Table, width: int) -> Iterator[Line]:
    """The header, a rule and the rows. Cells that are too wide are wrapped."""
    widths = _column_widths(table, width)
    header = tuple(cell.stylize_before(".markdown--strong") for cell in table.header)
    yield from _row_lines(header, widths, table.aligns)
    rule = Content.styled(_CROSS.join("─" * each for each in widths), ".markdown--dim")
    yield Line(rule, columns=())
    for row in table.rows:
        yield from _row_lines(row, widths, table.aligns)


def _column_widths(table: Table, width: int) -> list[int]:
    """As wide as the columns need; a column that needs more than an even share gets the share."""
    rows = (table.header, *table.rows)
    needed = [max(_needed(row[column]) for row in rows) for column in range(len(table.header))]
    left = width - _GAP.cell_length * (len(needed) - 1)
    widths = [0] * len(needed)
    narrowest_first = sorted(range(len(needed)), key=needed.__getitem__)
    for done, column in enumerate(narrowest_first):
        share = max(_MIN_WIDTH, left // (len(needed) - done))
        widths[column] = min(needed[column], share)
        left -= widths[column]
    return widths


def _needed(cell: Content) -> int:
    return max(1, *(line.cell_length for line in cell.split(allow_blank=True)))


def _row_lines(row: Row, widths: Sequence[int], aligns: Sequence[Align]) -> Iterator[Line]:
    columns = [wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
    for number, parts in enumerate(zip_longest(*columns)):
        shown, cells, start = list[Content](), list[Cell](), 0
        for column, part in enumerate(parts):
            left, right = _padding(part, widths[column], aligns[column])
            content = part.content if part else Content("")
            end = start + left + len(content)
            if part:
                cells.append(Cell(start + left, end, part.separator, column))
            shown += [_GAP, content.pad(left, right)]
            start = end + right + len(_GAP)
        # Content.join miscounts the length by one gap.
        line = Content.assemble(*shown[1:])
        yield Line(line, columns=tuple(cells), continues=number > 0)


def _padding(part: Line | None, width: int, align: Align) -> tuple[int, int]:
    """The spaces before and after a part of a cell."""
    space = max(0, width - (part.content.cell_length if part else 0))
    left = {"left": 0, "center": space // 2, "right": space}[align]
    return left, space - left
