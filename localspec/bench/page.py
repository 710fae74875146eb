"""Page: a report as one HTML file without any other resource, for light and dark screens."""

from collections.abc import Sequence
from itertools import groupby

from localspec.bench.charts import accepted_chart, cost_chart, speed_chart
from localspec.bench.configurations import PLAIN
from localspec.bench.page_parts import fact, figure, page, section, table, warning
from localspec.bench.report import Report
from localspec.bench.report_text import COLUMNS, LEGEND, cells, facts
from localspec.bench.served_summary import ServedSummary
from localspec.bench.served_text import (
    SERVED_COLUMNS,
    SERVED_LEGEND,
    fastest_peer_lines,
    served_cells,
)
from localspec.bench.summary import Summary
from localspec.bench.svg import tag
from localspec.bench.tool_summary import BesideTool
from localspec.bench.tool_text import (
    DRAFT_COLUMNS,
    PROMPT_COLUMNS,
    TOOL_LEGEND,
    draft_cells,
    prompt_cells,
    tool_lines,
)
from localspec.bench.users_chart import users_chart
from localspec.bench.users_summary import UsersSummary
from localspec.bench.users_text import USER_COLUMNS, USER_LEGEND, user_cells


def html_page(report: Report) -> str:
    """The text of the file; without its first line it is well-formed XML, too."""
    return page(f"localspec bench: {report.target.file.stem}", *_sections(report))


def _sections(report: Report) -> list[str]:
    by_set = [list(rows) for _, rows in groupby(report.rows, key=lambda row: row.set)]
    parts = [warning("Stopped before all was measured.")] if report.interrupted else []
    parts += [fact(each) for each in facts(report) + report.left_out]
    if by_set:
        parts += _speed(by_set)
        parts += [fact(line) for each in report.bounds for line in each.lines]
    if report.users:
        parts += _users(report.users)
    if report.served:
        parts += _served(report.served)
    if report.tool:
        parts += _tool(report.tool)
    if report.costs and report.costs.used:
        parts += [
            section(
                "What passes cost",
                "Milliseconds of a target pass by its rows (drafted tokens and one more), as "
                f"learnt; below, how wide the passes of {report.costs.by} were.",
            ),
            tag("figure", cost_chart(report.costs), class_="wide"),
        ]
    if by_set:
        parts += _accepted(by_set[-1])
        bodies = [[cells(row) for row in rows] for rows in by_set]
        parts += [section("Figures", f"{LEGEND}."), table(COLUMNS, bodies)]
    return parts


def _speed(by_set: Sequence[list[Summary]]) -> list[str]:
    ratios = [row.ratio for rows in by_set for row in rows if row.ratio]
    most = 1.05 * max([1.0, *(ratio.high or ratio.value for ratio in ratios)])
    return [
        section(
            "Speed",
            "Tokens per second, as a multiple of plain decoding of the same prompt in the same "
            "round. Bars: medians; thin lines: 95 % intervals over prompts.",
        ),
        tag(
            "div",
            *(figure(rows[0].set, speed_chart(rows[0].set, rows, most)) for rows in by_set),
            class_="charts",
        ),
    ]


def _accepted(rows: Sequence[Summary]) -> list[str]:
    drafting = [row for row in rows if row.configuration != PLAIN]
    if not drafting:
        return []
    longest = max(len(row.accepted_lengths) for row in drafting) - 1
    return [
        section(
            "Accepted tokens per step",
            "The share of steps in which so many drafted tokens became text; 0 where nothing was "
            "drafted, too. All prompt sets together.",
        ),
        tag(
            "div",
            *(figure(row.configuration, accepted_chart(row, longest)) for row in drafting),
            class_="charts",
        ),
    ]


def _users(rows: Sequence[UsersSummary]) -> list[str]:
    by_count = [list(own) for _, own in groupby(rows, key=lambda row: row.users)]
    bodies = [[user_cells(row) for row in own] for own in by_count]
    return [
        section(
            "Several users",
            "Tokens per second of all users who ask at the same time, reading their prompts "
            "included. Bars: medians; thin lines: 95 % intervals over rounds; dashes: the same "
            "texts one after the other.",
        ),
        tag("figure", users_chart(rows), class_="wide"),
        section("Figures of several users", f"{USER_LEGEND}."),
        table(USER_COLUMNS, bodies),
    ]


def _served(rows: Sequence[ServedSummary]) -> list[str]:
    by_count = [list(own) for _, own in groupby(rows, key=lambda row: row.users)]
    bodies = [[served_cells(row) for row in own] for own in by_count]
    return [
        section(
            "Servers",
            "Tokens per second of all users who ask at the same time over HTTP, reading their "
            "prompts included. Bars: medians; thin lines: 95 % intervals over rounds.",
        ),
        tag("figure", users_chart(rows), class_="wide"),
        *(fact(line) for line in fastest_peer_lines(rows)),
        section("Figures of servers", f"{SERVED_LEGEND}."),
        table(SERVED_COLUMNS, bodies),
    ]


def _tool(found: BesideTool) -> list[str]:
    return [
        section("Beside llama.cpp's tool", f"{TOOL_LEGEND}."),
        *(fact(line) for line in tool_lines(found)),
        table(PROMPT_COLUMNS, [[prompt_cells(row) for row in found.prompts]]),
        table(DRAFT_COLUMNS, [[draft_cells(row) for row in found.drafts]]),
    ]
