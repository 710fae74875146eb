"""Page: a report as one HTML file without any other resource, for light and dark screens."""

from collections.abc import Sequence
from importlib import resources
from itertools import groupby

from localspec.bench.charts import accepted_chart, cost_chart, speed_chart
from localspec.bench.configurations import PLAIN
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
from localspec.bench.svg import escaped, tag
from localspec.bench.users_chart import users_chart
from localspec.bench.users_summary import UsersSummary
from localspec.bench.users_text import USER_COLUMNS, USER_LEGEND, user_cells


def html_page(report: Report) -> str:
    """The text of the file; without its first line it is well-formed XML, too."""
    style = resources.files("localspec.bench") / "page.css"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", escaped(f"localspec bench: {report.target.file.stem}")),
        tag("style", escaped(style.read_text(encoding="utf-8"))),
    )
    body = tag("body", tag("main", *_sections(report)))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _sections(report: Report) -> list[str]:
    by_set = [list(rows) for _, rows in groupby(report.rows, key=lambda row: row.set)]
    parts = [tag("h1", escaped(f"localspec bench: {report.target.file.stem}"))]
    if report.interrupted:
        parts.append(tag("p", escaped("Stopped before all was measured."), class_="warning"))
    parts += [tag("p", escaped(fact), class_="fact") for fact in facts(report) + report.left_out]
    if by_set:
        parts += _speed(by_set)
    if report.users:
        parts += _users(report.users)
    if report.served:
        parts += _served(report.served)
    if report.costs and report.costs.used:
        parts += [
            _title(
                "What passes cost",
                "Milliseconds of a target pass by its rows (drafted tokens and one more), as "
                f"learnt; below, how wide the passes of {report.costs.by} were.",
            ),
            tag("figure", cost_chart(report.costs), class_="wide"),
        ]
    if by_set:
        parts += _accepted(by_set[-1])
        bodies = [[cells(row) for row in rows] for rows in by_set]
        parts += [_title("Figures", f"{LEGEND}."), _table(COLUMNS, bodies)]
    return parts


def _speed(by_set: Sequence[list[Summary]]) -> list[str]:
    ratios = [row.ratio for rows in by_set for row in rows if row.ratio]
    most = 1.05 * max([1.0, *(ratio.high or ratio.value for ratio in ratios)])
    return [
        _title(
            "Speed",
            "Tokens per second, as a multiple of plain decoding of the same prompt in the same "
            "round. Bars: medians; thin lines: 95 % intervals over prompts.",
        ),
        tag(
            "div",
            *(_figure(rows[0].set, speed_chart(rows[0].set, rows, most)) for rows in by_set),
            class_="charts",
        ),
    ]


def _accepted(rows: Sequence[Summary]) -> list[str]:
    drafting = [row for row in rows if row.configuration != PLAIN]
    if not drafting:
        return []
    longest = max(len(row.accepted_lengths) for row in drafting) - 1
    return [
        _title(
            "Accepted tokens per step",
            "The share of steps in which so many drafted tokens became text; 0 where nothing was "
            "drafted, too. All prompt sets together.",
        ),
        tag(
            "div",
            *(_figure(row.configuration, accepted_chart(row, longest)) for row in drafting),
            class_="charts",
        ),
    ]


def _users(rows: Sequence[UsersSummary]) -> list[str]:
    by_count = [list(own) for _, own in groupby(rows, key=lambda row: row.users)]
    bodies = [[user_cells(row) for row in own] for own in by_count]
    return [
        _title(
            "Several users",
            "Tokens per second of all users who ask at the same time, reading their prompts "
            "included. Bars: medians; thin lines: 95 % intervals over rounds; dashes: the same "
            "texts one after the other.",
        ),
        tag("figure", users_chart(rows), class_="wide"),
        _title("Figures of several users", f"{USER_LEGEND}."),
        _table(USER_COLUMNS, bodies),
    ]


def _served(rows: Sequence[ServedSummary]) -> list[str]:
    by_count = [list(own) for _, own in groupby(rows, key=lambda row: row.users)]
    bodies = [[served_cells(row) for row in own] for own in by_count]
    return [
        _title(
            "Servers",
            "Tokens per second of all users who ask at the same time over HTTP, reading their "
            "prompts included. Bars: medians; thin lines: 95 % intervals over rounds.",
        ),
        tag("figure", users_chart(rows), class_="wide"),
        *(tag("p", escaped(line), class_="fact") for line in fastest_peer_lines(rows)),
        _title("Figures of servers", f"{SERVED_LEGEND}."),
        _table(SERVED_COLUMNS, bodies),
    ]


def _table(columns: Sequence[str], groups: Sequence[Sequence[Sequence[str]]]) -> str:
    """A table with a line between groups of rows."""
    head = tag("thead", tag("tr", *(tag("th", escaped(name)) for name in columns)))
    bodies = [
        tag("tbody", *(tag("tr", *(tag("td", escaped(cell)) for cell in row)) for row in rows))
        for rows in groups
    ]
    return tag("div", tag("table", head, *bodies), class_="scroll")


def _title(title: str, about: str) -> str:
    return tag("h2", escaped(title)) + tag("p", escaped(about))


def _figure(caption: str, chart: str) -> str:
    return tag("figure", tag("figcaption", escaped(caption)), chart)
