"""Found text: where a text occurs in what is shown.

What is shown is read from lines that are laid out, so that a text is found where its lines have it:
without the marks of Markdown, and each cell of a table by itself. At another width it has the same
occurrences, because only the whitespace between its words is another.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from localspec_tui.markdown.line import Cell, Line


class Span(NamedTuple):
    """A part of a row that belongs to an occurrence.

    start, end: characters of the row's content. number: of the occurrence in its text, from 0.
    """

    start: int
    end: int
    number: int


def occurrences(pattern: re.Pattern[str], text: str) -> int:
    """How often a text has what a pattern finds."""
    return sum(1 for _ in pattern.finditer(text))


def shown_text(lines: Iterable[Line]) -> str:
    """The text that lines show, in the order in which one reads it."""
    return "".join(_text(line, cell) for _, line, cell in _in_reading_order(lines))


def spans_by_row(lines: Iterable[Line], pattern: re.Pattern[str]) -> dict[int, list[Span]]:
    """The occurrences in lines, by the number of the row."""
    cells = [*_in_reading_order(lines)]
    texts = [_text(line, cell) for _, line, cell in cells]
    starts = [*accumulate(map(len, texts), initial=0)]
    spans: dict[int, list[Span]] = {}
    for number, match in enumerate(pattern.finditer("".join(texts))):
        for at in range(bisect_right(starts, match.start()) - 1, len(cells)):
            row, _, cell = cells[at]
            # Where the text would begin if the row were all of it.
            begin = starts[at] + len(cell.separator) - cell.start
            start, end = max(match.start() - begin, cell.start), min(match.end() - begin, cell.end)
            if start < end:
                spans.setdefault(row, []).append(Span(start, end, number))
            if match.end() <= starts[at + 1]:
                break
    return spans


def _text(line: Line, cell: Cell) -> str:
    return cell.separator + line.content.plain[cell.start : cell.end]


def _in_reading_order(lines: Iterable[Line]) -> Sequence[tuple[int, Line, Cell]]:
    """The parts of lines with the number of their row: of a row of a table, cell by cell."""

    def located() -> Iterator[tuple[int, int, int, Line, Cell]]:
        first = 0
        for row, line in enumerate(lines):
            first = first if line.continues else row
            for cell in line.cells:
                yield first, cell.column, row, line, cell

    ordered = sorted(located(), key=lambda each: each[:3])
    return [(row, line, cell) for _, _, row, line, cell in ordered]
