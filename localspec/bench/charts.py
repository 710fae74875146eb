"""Charts: speed by configuration, costs of passes by rows, accepted tokens per step."""

from collections.abc import Sequence

from localspec.bench.configurations import PLAIN
from localspec.bench.plots import WIDTH, Bar, Column, bar_plot, column_plot
from localspec.bench.report import PassSummary
from localspec.bench.summary import Summary
from localspec.bench.svg import bar, drawing, line, staircase, text, ticks
from localspec.drafters.spec import AUTO

# More accepted tokens than this are one bar.
_LONGEST = 12


def speed_chart(set_: str, rows: Sequence[Summary], most: float) -> str:
    """Draw the speed-up of each configuration. most: the end of the scale, for all sets alike."""
    bars = [_speed(row) for row in rows]
    return bar_plot(f"Speed against plain decoding, {set_}", bars, most, " x", one=True)


def _speed(row: Summary) -> Bar | None:
    if row.ratio is None:
        return None
    value, low, high = row.ratio.value, row.ratio.low, row.ratio.high
    about = f"{row.configuration}: {value:.2f} x plain, {row.tokens_per_second.value:.1f} tok/s"
    interval = None
    if low is not None and high is not None and row.configuration != PLAIN:
        interval = low, high
    class_ = css_class(row.configuration)
    return Bar(row.configuration, value, f"{value:.2f} x", about, class_, interval)


def cost_chart(costs: PassSummary) -> str:
    """Draw the milliseconds of a pass by its rows, and below them the share of such passes."""
    milliseconds = [1000 * seconds for seconds in costs.seconds]
    most, count = max(milliseconds) * 1.05, len(milliseconds)
    left, top, high, gap, low = 44.0, 10.0, 170.0, 26.0, 70.0
    each = (2 * WIDTH - left - 8) / count

    def y(value: float) -> float:
        return top + high * (1 - value / most)

    parts = []
    for tick in ticks(most):
        parts.append(line(left, y(tick), 2 * WIDTH - 8, y(tick), "grid"))
        parts.append(text(left - 6, y(tick) + 4, f"{tick:g} ms", anchor="end", class_="tick"))
    points = [(left + each * (width + 1), y(value)) for width, value in enumerate(milliseconds)]
    parts.append(staircase([(left, points[0][1]), *points], "stair"))
    floor = top + high + gap + low
    passes = sum(costs.used.values()) or 1
    for width in range(1, count + 1):
        x, used = left + each * (width - 1), costs.used.get(width, 0)
        share = used / passes
        about = f"{width} rows: {milliseconds[width - 1]:.2f} ms, {used} passes, {share:.1%}"
        parts.append(bar(x, top, each, high, class_="hover", about=about))
        parts.append(
            bar(x + 2, floor - low * share, each - 4, low * share, class_="drafter", about=about)
        )
        if width == 1 or width % 4 == 0:
            parts.append(text(x + each / 2, floor + 14, str(width), anchor="middle", class_="tick"))
        if share >= 0.02:
            where = floor - low * share - 4
            parts.append(text(x + each / 2, where, f"{share:.0%}", anchor="middle", class_="tick"))
    parts.append(line(left, floor, 2 * WIDTH - 8, floor, "grid"))
    parts.append(text(left - 6, floor - 4, "passes", anchor="end", class_="tick"))
    return drawing(2 * WIDTH, floor + 20, "What passes cost, and how wide they were", *parts)


def accepted_chart(row: Summary, longest: int) -> str:
    """Draw the share of steps by accepted tokens, from 0 to `longest`."""
    most, columns = min(longest, _LONGEST), list[Column]()
    for accepted in range(most + 1):
        last = accepted == _LONGEST
        count = sum(row.accepted_lengths[accepted : None if last else accepted + 1])
        share, name = count / row.steps, f"{accepted}+" if last else str(accepted)
        columns.append(Column(name, share, f"{name} accepted: {count} steps, {share:.1%}"))
    label = f"Accepted tokens per step, {row.configuration}"
    return column_plot(label, columns, css_class(row.configuration))


def css_class(configuration: str) -> str:
    """The class of its bars, which gives them their colour."""
    name = configuration.partition(",")[0]
    return name if name in (PLAIN, AUTO) else "drafter"
