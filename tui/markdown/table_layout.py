"""Table layout: a table as lines of a given width."""

from collections.abc import Iterator, Sequence

from textual.content import Content

from localspec_tui.markdown.blocks import Align, Row, Table
from localspec_tui.markdown.line import Line

_GAP = Content.styled(" │ ", ".markdown--dim")
_CROSS = "─┼─"
_MIN_WIDTH = 3


def table_lines(table: Table, width: int) -> Iterator[Line]:
    """The header, a rule and the rows. Cells that are too wide are wrapped."""
    widths = _column_widths(table, width)
    header = tuple(cell.stylize_before(".markdown--strong") for cell in table.header)
    yield from _row_lines(header, widths, table.aligns)
    yield Line(Content.styled(_CROSS.join("─" * each for each in widths), ".markdown--dim"))
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
    cells = [cell.wrap(width) for cell, width in zip(row, widths, strict=True)]
    for number in range(max(map(len, cells))):
        parts = [
            _padded(cell[number] if number < len(cell) else Content(""), width, align)
            for cell, width, align in zip(cells, widths, aligns, strict=True)
        ]
        yield Line(_joined(parts))


def _joined(parts: Sequence[Content]) -> Content:
    # Content.join miscounts the length by one gap.
    return Content.assemble(*[each for part in parts for each in (_GAP, part)][1:])


def _padded(part: Content, width: int, align: Align) -> Content:
    space = max(0, width - part.cell_length)
    left = {"left": 0, "center": space // 2, "right": space}[align]
    return part.pad(left, space - left)
