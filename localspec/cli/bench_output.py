"""What `localspec bench` shows: progress while it runs, a table at the end."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from localspec.bench import COLUMNS, LEGEND, Report, Run, Summary, Task, cells, facts
from localspec.cli.output import join_facts, write_note
from localspec.cli.table import empty_table, stdout_console

# In letters, where the width of the reader's screen is not known.
_WIDTH = 110


def with_progress(runs: Iterator[Run], tasks: Sequence[Task], count: int) -> Iterator[Run]:
    """Yield the runs, and show each on stderr as it ends: a bar on a terminal, else lines.

    count: how many runs there will be.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield from _with_lines(runs, tasks, count)
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
            progress.update(bar, advance=1, description=_about(run, tasks), refresh=True)
            yield run


def _with_lines(runs: Iterator[Run], tasks: Sequence[Task], count: int) -> Iterator[Run]:
    for number, run in enumerate(runs, start=1):
        speed = f"{run.tokens_per_second:.1f} tok/s"
        write_note(join_facts([f"{number} of {count}", _about(run, tasks), speed]))
        yield run


def report_text(report: Report) -> str:
    """Return the table, its legend, and the conditions of the measurement, for stdout."""
    width = shutil.get_terminal_size((_WIDTH, 0)).columns if sys.stdout.isatty() else _WIDTH
    console = stdout_console(width)
    with console.capture() as capture:
        console.print(_table(report.rows))
        console.print(LEGEND, soft_wrap=True)
        for fact in facts(report):
            console.print(fact, soft_wrap=True)
        if report.interrupted:
            console.print("stopped before all was measured", soft_wrap=True)
    return capture.get()


def _table(rows: Sequence[Summary]) -> Table:
    table = empty_table()
    for position, name in enumerate(COLUMNS):
        table.add_column(name, justify="left" if position < 2 else "right")
    for _, group in groupby(rows, key=lambda row: row.set):
        for position, row in enumerate(group):
            set_, *others = cells(row)
            table.add_row("" if position else set_, *others)
        table.add_section()
    return table


def _about(run: Run, tasks: Sequence[Task]) -> str:
    task = tasks[run.task]
    return join_facts([f"round {run.round + 1}", f"{task.set} {task.number}", run.configuration])
