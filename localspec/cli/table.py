"""Tables for stdout: drawn on a terminal, lines in columns everywhere else."""

import shutil
import sys
from collections.abc import Collection, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from localspec.cli.output import colors_off_because
from localspec.utils.format import without_controls


def table_text(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()
) -> str:
    """Return a table with a header, "" if it has no rows.

    right: the columns that are aligned to the right.
    """
    if not rows:
        return ""
    if not sys.stdout.isatty():
        return _in_columns(columns, rows, right)
    table = empty_table()
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(without_controls, row))
    console = stdout_console(shutil.get_terminal_size().columns)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def empty_table() -> Table:
    """Return a rich table in localspec's style, with letters that stdout can encode."""
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return Table(box=box.SIMPLE_HEAD if utf8 else box.ASCII2, pad_edge=False)


def stdout_console(width: int) -> Console:
    """Return a rich console that styles text as stdout takes it. width: in letters.

    To be used with `capture`: text goes to stdout through `Output` alone.
    """
    colored = not colors_off_because(sys.stdout)
    return Console(
        width=width,
        force_terminal=colored,
        no_color=not colored,
        highlight=False,
        emoji=False,
        markup=False,
    )


def _in_columns(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str]
) -> str:
    lines = [columns, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(columns))]
    shown = [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ).rstrip()
        for line in lines
    ]
    return "\n".join(shown) + "\n"
