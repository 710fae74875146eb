"""What `localspec bench` shows: progress while it runs, a table at the end."""

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from localspec.bench import COLUMNS, LEGEND, Report, Run, Summary, Task, cells, facts
from localspec.bench.configurations import PLAIN
from localspec.bench.served_summary import ServedSummary
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
from localspec.bench.users_summary import UsersSummary
from localspec.bench.users_text import USER_COLUMNS, USER_LEGEND, user_cells
from localspec.cli.bench_table import table_of, wide_console
from localspec.cli.output import join_facts, write_note
from localspec.control.quick_target import too_quick_text
from localspec.utils.format import one_line


class _Measured(Protocol):
    """A run with a speed."""

    @property
    def tokens_per_second(self) -> float: ...


_Run = TypeVar("_Run", bound=_Measured)


def with_progress(runs: Iterator[_Run], about: Callable[[_Run], str], count: int) -> Iterator[_Run]:
    """Yield the runs, and show each on stderr as it ends: a bar on a terminal, else lines.

    about: what was measured, as one line. count: how many runs there will be.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield from _with_lines(runs, about, count)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    # No thread that draws: it would take time from what is measured.
    with Progress(
        *columns, console=Console(stderr=True), transient=True, auto_refresh=False
    ) as progress:
        bar = progress.add_task("warming up", total=count)
        progress.refresh()
        for run in runs:
            progress.update(bar, advance=1, description=about(run), refresh=True)
            yield run


def _with_lines(runs: Iterator[_Run], about: Callable[[_Run], str], count: int) -> Iterator[_Run]:
    for number, run in enumerate(runs, start=1):
        speed = f"{run.tokens_per_second:.1f} tok/s"
        write_note(join_facts([f"{number} of {count}", about(run), speed]))
        yield run


def report_text(report: Report) -> str:
    """Return the table, its legend, and the conditions of the measurement, for stdout."""
    console = wide_console()
    with console.capture() as capture:
        if report.rows:
            console.print(table_of(COLUMNS, _groups(report.rows)))
            console.print(LEGEND, soft_wrap=True)
            for line in (line for each in report.bounds for line in each.lines):
                console.print(line, soft_wrap=True)
        if report.users:
            console.print(table_of(USER_COLUMNS, _user_groups(report.users)))
            console.print(USER_LEGEND, soft_wrap=True)
        if report.served:
            console.print(table_of(SERVED_COLUMNS, _served_groups(report.served)))
            console.print(SERVED_LEGEND, soft_wrap=True)
            for line in fastest_peer_lines(report.served):
                console.print(line, soft_wrap=True)
        if report.tool:
            console.print(table_of(PROMPT_COLUMNS, [map(prompt_cells, report.tool.prompts)]))
            console.print(table_of(DRAFT_COLUMNS, [map(draft_cells, report.tool.drafts)]))
            console.print(TOOL_LEGEND, soft_wrap=True)
            for line in tool_lines(report.tool):
                console.print(line, soft_wrap=True)
        for fact in facts(report):
            console.print(fact, soft_wrap=True)
        if report.interrupted:
            console.print("stopped before all was measured", soft_wrap=True)
    return capture.get()


def quick_target_line(rows: Sequence[Summary]) -> str:
    """Return that the target is too quick for drafts, "" if it is not. rows: of the whole report.

    The last rows are those on all prompts.
    """
    all_prompts = [row for row in rows if row.set == rows[-1].set]
    plain = [row.tokens_per_second.value for row in all_prompts if row.configuration == PLAIN]
    ratios = [row.ratio.value for row in all_prompts if row.ratio and row.configuration != PLAIN]
    return too_quick_text(1 / plain[0], max(ratios)) if plain and ratios else ""


def _groups(rows: Sequence[Summary]) -> Iterator[Iterator[Sequence[str]]]:
    for _, group in groupby(rows, key=lambda row: row.set):
        yield map(cells, group)


def _user_groups(rows: Sequence[UsersSummary]) -> Iterator[Iterator[Sequence[str]]]:
    for _, group in groupby(rows, key=lambda row: row.users):
        yield map(user_cells, group)


def _served_groups(rows: Sequence[ServedSummary]) -> Iterator[Iterator[Sequence[str]]]:
    for _, group in groupby(rows, key=lambda row: row.users):
        yield map(served_cells, group)


def about_run(run: Run, tasks: Sequence[Task]) -> str:
    """Return which round, prompt and configuration a run is."""
    task = tasks[run.task]
    about = [f"round {run.round + 1}", f"{task.set} {task.number}", run.configuration]
    return one_line(join_facts(about))
