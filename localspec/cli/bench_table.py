"""Tables of `localspec bench`: rows in groups, as wide as the reader's screen."""

import shutil
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from localspec.cli.table import empty_table, stdout_console
from localspec.utils.format import one_line

# In letters, where stdout is no screen: wide enough for every row to be one line.
_WIDTH = 200


def wide_console() -> Console:
    """A console for stdout, as wide as the screen, or as _WIDTH where there is none."""
    width = shutil.get_terminal_size((_WIDTH, 0)).columns if sys.stdout.isatty() else _WIDTH
    return stdout_console(width)


def table_of(columns: Sequence[str], groups: Iterable[Iterable[Sequence[str]]]) -> Table:
    """A table; the first cell of a group is said once."""
    table = empty_table()
    for position, name in enumerate(columns):
        table.add_column(name, justify="left" if position < 2 else "right")
    for group in groups:
        for position, (first, *others) in enumerate(group):
            table.add_row("" if position else one_line(first), *map(one_line, others))
        table.add_section()
    return table


def printed_table(
    columns: Sequence[str], groups: Iterable[Iterable[Sequence[str]]], lines: Iterable[str]
) -> str:
    """A table and lines below it, as text for stdout."""
    console = wide_console()
    with console.capture() as capture:
        console.print(table_of(columns, groups))
        for line in lines:
            console.print(one_line(line), soft_wrap=True)
    return capture.get()
