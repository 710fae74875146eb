"""Users chart: the speed of all users together, by their number and the configuration."""

from collections.abc import Callable, Sequence
from itertools import groupby

from localspec.bench.charts import css_class
from localspec.bench.plots import shortened
from localspec.bench.served_summary import ServedSummary
from localspec.bench.svg import bar, drawing, line, text, ticks
from localspec.bench.users_summary import UsersSummary
from localspec.utils.format import counted

_WIDTH = 720.0
# The widths of the number of users, of names, and of figures on the right.
_USERS, _NAME, _VALUE = 60.0, 140.0, 62.0
_ROW, _BAR, _GAP = 24.0, 14.0, 10.0


def users_chart(rows: Sequence[UsersSummary | ServedSummary]) -> str:
    """Draw a bar for each number of users and configuration; at least one row."""
    left = _USERS + _NAME
    most = 1.05 * max(
        value for row in rows for value in (row.total.high or row.total.value, _in_turn(row) or 0.0)
    )

    def x(speed: float) -> float:
        return left + (_WIDTH - left - _VALUE) * speed / most

    parts, top = list[str](), 8.0
    for users, group in groupby(rows, key=lambda row: row.users):
        parts.append(text(0, top + 11, counted(users, "user")))
        for row in group:
            parts += _row(row, left, top, x)
            top += _ROW
        top += _GAP
    grid = [line(x(tick), 4, x(tick), top, "grid") for tick in ticks(most)]
    for tick in ticks(most):
        parts.append(text(x(tick), top + 14, f"{tick:g} tok/s", anchor="middle", class_="tick"))
    return drawing(_WIDTH, top + 20, "Speed of several users together", *grid, *parts)


def _row(
    row: UsersSummary | ServedSummary, left: float, top: float, x: Callable[[float], float]
) -> list[str]:
    """A bar with its interval, and a dash where the same texts one after the other are."""
    value, low, high, in_turn = row.total.value, row.total.low, row.total.high, _in_turn(row)
    about = f"{row.configuration}, {row.users} at once: {value:.1f} tok/s"
    if in_turn is not None:
        about += f"; one after the other: {in_turn:.1f} tok/s"
    kind = css_class(row.configuration)
    parts = [
        text(left - 8, top + 11, shortened(row.configuration), anchor="end"),
        bar(left, top, x(value) - left, _BAR, class_=kind, about=about),
        text(_WIDTH, top + 11, f"{value:.1f}", anchor="end", class_="figure"),
    ]
    if in_turn is not None:
        parts.append(line(x(in_turn), top - 3, x(in_turn), top + _BAR + 3, "one"))
    if low is not None and high is not None:
        parts.append(line(x(low), top + _BAR / 2, x(high), top + _BAR / 2, "range"))
    return parts


def _in_turn(row: UsersSummary | ServedSummary) -> float | None:
    """The speed of the same texts one after the other, if it was measured."""
    return row.total_in_turn.value if isinstance(row, UsersSummary) else None
