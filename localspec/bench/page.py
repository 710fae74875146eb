"""Page: a report as one HTML file without any other resource, for light and dark screens."""

from collections.abc import Sequence
from itertools import groupby

from localspec.bench.charts import accepted_chart, cost_chart, speed_chart
from localspec.bench.configurations import PLAIN
from localspec.bench.page_parts import fact, figure, page, section, table, warning
from localspec.bench.report import BenchmarkReport
from localspec.bench.report_text import facts
from localspec.bench.section import Section, sections
from localspec.bench.summary import Summary
from localspec.bench.svg import tag
from localspec.bench.users_chart import users_chart


def html_page(report: BenchmarkReport) -> str:
    """The text of the file; without its first line it is well-formed XML, too."""
    return page(f"localspec bench: {report.target.file.stem}", *_sections(report))


def _sections(report: BenchmarkReport) -> list[str]:
    by_set = [list(rows) for _, rows in groupby(report.rows, key=lambda row: row.set)]
    parts = [warning("Stopped before all was measured.")] if report.interrupted else []
    parts += [fact(each) for each in facts(report) + report.left_out]
    # Those of each plot stand behind it.
    figures = sections(report)
    if by_set:
        parts += [*_speed(by_set), *_figures(next(figures))]
    if report.users:
        parts += [
            section(
                "Several users",
                "Tokens per second of all users who ask at the same time, reading their prompts "
                "included. Bars: geometric means; thin lines: 95 % intervals over rounds; "
                "dashes: the same texts one after the other.",
            ),
            tag("figure", users_chart(report.users), class_="wide"),
            *_figures(next(figures)),
        ]
    if report.served:
        parts += [
            section(
                "Servers",
                "Tokens per second of all users who ask at the same time over HTTP, reading their "
                "prompts included. Bars: geometric means; thin lines: 95 % intervals over rounds.",
            ),
            tag("figure", users_chart(report.served), class_="wide"),
            *_figures(next(figures)),
        ]
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
    for each in figures:
        parts += _figures(each)
    return parts


def _figures(found: Section) -> list[str]:
    """The tables of a section, and behind them what they come to."""
    tables = [table(columns, groups) for columns, groups in found.tables]
    return [section(found.title, f"{found.legend}."), *tables, *map(fact, found.lines)]


def _speed(by_set: Sequence[list[Summary]]) -> list[str]:
    ratios = [row.ratio for rows in by_set for row in rows if row.ratio]
    most = 1.05 * max([1.0, *(ratio.high or ratio.value for ratio in ratios)])
    return [
        section(
            "Speed",
            "Tokens per second, as a multiple of plain decoding of the same prompt in the same "
            "round. Bars: geometric means; thin lines: 95 % intervals over prompts.",
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
