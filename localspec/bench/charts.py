"""Charts: speed by drafter, what passes cost, how many drafted tokens are accepted."""

from collections.abc import Sequence

from localspec.bench.configurations import PLAIN
from localspec.bench.report import Costs
from localspec.bench.summary import Row
from localspec.bench.svg import bar, line, picture, steps, text, ticks
from localspec.loading.drafter_loader import AUTO

_WIDTH = 460.0
_NAME, _VALUE = 140.0, 62.0  # room for names on the left, for figures on the right
_ROW, _BAR = 26.0, 14.0
# Longer ones are drawn as one.
_LONGEST = 12


def speed_chart(set_: str, rows: Sequence[Row], most: float) -> str:
    """Speed against plain decoding. most: the end of the scale, the same for all sets."""
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
        about = f"{row.contender}: {value:.2f} x plain, {row.tokens_per_second.value:.1f} tok/s"
        parts += [
            text(_NAME - 8, top + 11, shortened(row.contender), anchor="end"),
            bar(
                _NAME,
                top,
                x(value) - _NAME,
                _BAR,
                class_=kind_of(row.contender),
                about=about,
            ),
            text(_WIDTH, top + 11, f"{value:.2f} x", anchor="end", class_="figure"),
        ]
        if low is not None and high is not None and row.contender != PLAIN:
            parts.append(line(x(low), top + _BAR / 2, x(min(high, most)), top + _BAR / 2, "range"))
    parts.append(line(x(1), 4, x(1), bottom, "one"))
    return picture(_WIDTH, bottom + 20, f"Speed against plain decoding, {set_}", *parts)


def cost_chart(costs: Costs) -> str:
    """Milliseconds of passes by their rows, and below how many of the passes had so many."""
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
    parts.append(steps([(left, points[0][1]), *points], "stair"))
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
    return picture(2 * _WIDTH, floor + 20, "What passes cost, and how wide they were", *parts)


def accepted_chart(row: Row, longest: int) -> str:
    """In how many of the steps so many drafted tokens were accepted; up to `longest` are told."""
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
        kind = kind_of(row.contender)
        parts += [
            bar(x + 2, floor - up, each - 4, up, class_=kind, about=about),
            text(x + each / 2, floor + 14, name, anchor="middle", class_="tick"),
        ]
        if share >= 0.005:
            parts.append(
                text(x + each / 2, floor - up - 4, f"{share:.0%}", anchor="middle", class_="tick")
            )
    return picture(width, floor + 20, f"Accepted tokens per step, {row.contender}", *parts)


def kind_of(contender: str) -> str:
    """The class that gives its colour."""
    name = contender.partition(",")[0]
    return name if name in (PLAIN, AUTO) else "drafter"


def shortened(name: str, most: int = 18) -> str:
    """As much of a name as there is room for: its beginning and its end."""
    if len(name) <= most:
        return name
    end = most // 2
    return f"{name[: most - end - 1]}…{name[-end:]}"
