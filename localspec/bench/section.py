"""Section: the figures of a report as tables and lines, for the terminal and for the page."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

from localspec.bench.report import BenchmarkReport
from localspec.bench.report_text import COLUMNS, LEGEND, cells, prompt_lines
from localspec.bench.served_text import (
    SERVED_COLUMNS,
    SERVED_LEGEND,
    fastest_peer_lines,
    served_cells,
)
from localspec.bench.tool_text import (
    DRAFT_COLUMNS,
    PROMPT_COLUMNS,
    TOOL_LEGEND,
    draft_cells,
    prompt_cells,
    tool_lines,
)
from localspec.bench.users_text import USER_COLUMNS, USER_LEGEND, user_cells

_Groups = list[list[tuple[str, ...]]]
_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class Section:
    """What was measured in one way.

    tables: the columns of each, and its rows in groups. legend: of the columns. lines: what it
    comes to.
    """

    title: str
    tables: Sequence[tuple[Sequence[str], _Groups]]
    legend: str
    lines: Sequence[str] = ()


def sections(report: BenchmarkReport) -> Iterator[Section]:
    """Yield a section for each way in which something was measured."""
    if report.rows:
        groups = _grouped(report.rows, lambda row: row.set, cells)
        bounds = [line for each in report.bounds for line in each.lines]
        lines = [*prompt_lines(report.rows), *bounds]
        yield Section("Figures", [(COLUMNS, groups)], LEGEND, lines)
    if report.users:
        groups = _grouped(report.users, lambda row: row.users, user_cells)
        yield Section("Figures of several users", [(USER_COLUMNS, groups)], USER_LEGEND)
    if report.served:
        groups = _grouped(report.served, lambda row: row.users, served_cells)
        lines = fastest_peer_lines(report.served)
        yield Section("Figures of servers", [(SERVED_COLUMNS, groups)], SERVED_LEGEND, lines)
    if report.tool:
        tables = [
            (PROMPT_COLUMNS, [list(map(prompt_cells, report.tool.prompts))]),
            (DRAFT_COLUMNS, [list(map(draft_cells, report.tool.drafts))]),
        ]
        yield Section("Beside llama.cpp's tool", tables, TOOL_LEGEND, tool_lines(report.tool))


def _grouped(
    rows: Iterable[_Row],
    key: Callable[[_Row], object],
    cells_of: Callable[[_Row], tuple[str, ...]],
) -> _Groups:
    return [list(map(cells_of, own)) for _, own in groupby(rows, key)]
