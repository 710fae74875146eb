"""What `localspec bench` shows: progress while it runs, a table at the end."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from localspec.bench import BenchmarkReport, Run, Summary, Task, facts, sections
from localspec.bench.configurations import PLAIN
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


def report_text(report: BenchmarkReport) -> str:
    """Return the tables, their legends, and the conditions of the measurement, for stdout."""
    console = wide_console()
    with console.capture() as capture:
        for section in sections(report):
            for columns, groups in section.tables:
                console.print(table_of(columns, groups))
            for line in (section.legend, *section.lines):
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


def about_run(run: Run, tasks: Sequence[Task]) -> str:
    """Return which round, prompt and configuration a run is."""
    task = tasks[run.task]
    about = [f"round {run.round + 1}", f"{task.set} {task.number}", run.configuration]
    return one_line(join_facts(about))
