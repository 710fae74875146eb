"""Charts: speed by configuration, costs of passes by rows, accepted tokens per step."""

from collections.abc import Sequence

from localspec.bench.configurations import PLAIN
from localspec.bench.report import PassSummary
from localspec.bench.summary import Summary
from localspec.bench.svg import bar, drawing, line, staircase, text, ticks
from localspec.drafters.spec import AUTO

_WIDTH = 460.0
_NAME, _VALUE = 140.0, 62.0  # the widths of names on the left and of figures on the right
_ROW, _BAR = 26.0, 14.0
# More accepted tokens than this are one bar.
_LONGEST = 12


def speed_chart(set_: str, rows: Sequence[Summary], most: float) -> str:
    """Draw the speed-up of each configuration. most: the end of the scale, for all sets alike."""
    across = _WIDTH - _NAME - _VALUE

    def x(ratio: float) -> float:
        return _NAME + across * ratio / most

    bottom = 8 + _ROW * len(rows)
    parts = [
        *(line(x(tick), 4, x(tick), bottom, "grid") for tick in ticks(most)),
        *(
            text(x(tick), bottom + 14, f"{tick:g} x", anchor="middle", class_="tick")
            for tick in ticks(most)
        ),
    ]
    for index, row in enumerate(rows):
        if row.ratio is None:
            continue
        top = 8 + _ROW * index
        value, low, high = row.ratio.value, row.ratio.low, row.ratio.high
        about = f"{row.configuration}: {value:.2f} x plain, {row.tokens_per_second.value:.1f} tok/s"
        parts += [
            text(_NAME - 8, top + 11, shortened(row.configuration), anchor="end"),
            bar(
                _NAME,
                top,
                x(value) - _NAME,
                _BAR,
                class_=css_class(row.configuration),
                about=about,
            ),
            text(_WIDTH, top + 11, f"{value:.2f} x", anchor="end", class_="figure"),
        ]
        if low is not None and high is not None and row.configuration != PLAIN:
            parts.append(line(x(low), top + _BAR / 2, x(min(high, most)), top + _BAR / 2, "range"))
    parts.append(line(x(1), 4, x(1), bottom, "one"))
    return drawing(_WIDTH, bottom + 20, f"Speed against plain decoding, {set_}", *parts)


def cost_chart(costs: PassSummary) -> str:
    """Draw the milliseconds of a pass by its rows, and below them the share of such passes."""
    milliseconds = [1000 * seconds for seconds in costs.seconds]
    most, count = max(milliseconds) * 1.05, len(milliseconds)
    left, top, high, gap, low = 44.0, 10.0, 170.0, 26.0, 70.0
    each = (2 * _WIDTH - left - 8) / count

    def y(value: float) -> float:
        return top + high * (1 - value / most)

    parts = []
    for tick in ticks(most):
        parts.append(line(left, y(tick), 2 * _WIDTH - 8, y(tick), "grid"))
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
    parts.append(line(left, floor, 2 * _WIDTH - 8, floor, "grid"))
    parts.append(text(left - 6, floor - 4, "passes", anchor="end", class_="tick"))
    return drawing(2 * _WIDTH, floor + 20, "What passes cost, and how wide they were", *parts)


def accepted_chart(row: Summary, longest: int) -> str:
    """Draw the share of steps by accepted tokens, from 0 to `longest`."""
    width, high, top, edge = 300.0, 90.0, 22.0, 8.0
    most = min(longest, _LONGEST)
    each, floor = (width - 2 * edge) / max(most + 1, 6), top + high
    parts = [line(edge, floor, width - edge, floor, "grid")]
    for accepted in range(most + 1):
        last = accepted == _LONGEST
        count = sum(row.accepted_lengths[accepted : None if last else accepted + 1])
        share, name = count / row.steps, f"{accepted}+" if last else str(accepted)
        x, up = edge + each * accepted, high * share
        about = f"{name} accepted: {count} steps, {share:.1%}"
        kind = css_class(row.configuration)
        parts += [
            bar(x + 2, floor - up, each - 4, up, class_=kind, about=about),
            text(x + each / 2, floor + 14, name, anchor="middle", class_="tick"),
        ]
        if share >= 0.005:
            parts.append(
                text(x + each / 2, floor - up - 4, f"{share:.0%}", anchor="middle", class_="tick")
            )
    return drawing(width, floor + 20, f"Accepted tokens per step, {row.configuration}", *parts)


def css_class(configuration: str) -> str:
    """The class of its bars, which gives them their colour."""
    name = configuration.partition(",")[0]
    return name if name in (PLAIN, AUTO) else "drafter"


def shortened(name: str, most: int = 18) -> str:
    """The beginning and the end of a name that is too long for its column."""
    if len(name) <= most:
        return name
    end = most // 2
    return f"{name[: most - end - 1]}…{name[-end:]}"
