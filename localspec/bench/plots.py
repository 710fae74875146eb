"""Plots: bars, columns and lines of any figures, for the charts of pages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localspec.bench.svg import bar, dot, drawing, line, polyline, text, ticks

# Two drawings stand beside each other on a wide page.
WIDTH = 452.0
_NAME, _VALUE = 140.0, 62.0  # the widths of names on the left and of figures on the right
_ROW, _BAR = 26.0, 14.0
# The least distance of two names at the ends of lines.
_NAMES_APART = 12.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar to the right. shown: its figure. about: shown under the pointer.

    interval: its ends, drawn as a thin line. class_: gives it its colour.
    """

    name: str
    value: float
    shown: str
    about: str
    class_: str = "drafter"
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column up to a share, 0 to 1. about: shown under the pointer."""

    name: str
    share: float
    about: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line through shares, 0 to 1. name: at its end. opacity: 0 to 1."""

    name: str
    shares: Sequence[float]
    opacity: float = 1.0


def bar_plot(
    label: str, bars: Sequence[Bar | None], most: float, unit: str = "", *, one: bool = False
) -> str:
    """Draw bars below each other; None leaves a row empty.

    label: for screen readers. most: the end of the scale. unit: behind the figures of the scale.
    one: whether 1 is marked.
    """
    across = WIDTH - _NAME - _VALUE

    def x(value: float) -> float:
        return _NAME + across * value / most

    bottom = 8 + _ROW * len(bars)
    parts = [line(x(tick), 4, x(tick), bottom, "grid") for tick in ticks(most)]
    for tick in ticks(most):
        parts.append(text(x(tick), bottom + 14, f"{tick:g}{unit}", anchor="middle", class_="tick"))
    for index, each in enumerate(bars):
        if each:
            parts += _bar(each, 8 + _ROW * index, x, most)
    if one:
        parts.append(line(x(1), 4, x(1), bottom, "one"))
    return drawing(WIDTH, bottom + 20, label, *parts)


def _bar(each: Bar, top: float, x: Callable[[float], float], most: float) -> list[str]:
    width = x(each.value) - _NAME
    parts = [
        text(_NAME - 8, top + 11, shortened(each.name), anchor="end"),
        bar(_NAME, top, width, _BAR, class_=each.class_, about=each.about),
        text(WIDTH, top + 11, each.shown, anchor="end", class_="figure"),
    ]
    if each.interval:
        low, high = each.interval
        middle = top + _BAR / 2
        parts.append(line(x(low), middle, x(min(high, most)), middle, "range"))
    return parts


def column_plot(label: str, columns: Sequence[Column], class_: str) -> str:
    """Draw columns beside each other, with their shares where they are not 0."""
    width, high, top, edge = 300.0, 90.0, 22.0, 8.0
    each, floor = (width - 2 * edge) / max(len(columns), 6), top + high
    parts = [line(edge, floor, width - edge, floor, "grid")]
    for number, column in enumerate(columns):
        x, up = edge + each * number, high * column.share
        middle = x + each / 2
        parts += [
            bar(x + 2, floor - up, each - 4, up, class_=class_, about=column.about),
            text(middle, floor + 14, column.name, anchor="middle", class_="tick"),
        ]
        if column.share >= 0.005:
            shown = f"{column.share:.0%}"
            parts.append(text(middle, floor - up - 4, shown, anchor="middle", class_="tick"))
    return drawing(width, floor + 20, label, *parts)


def line_plot(label: str, lines: Sequence[Line], names: Sequence[str]) -> str:
    """Draw lines from 0 % to the highest share. names: of the places from left to right."""
    left, right, top, high = 44.0, 56.0, 10.0, 180.0
    most = min(1.0, 1.1 * max(0.1, *(share for each in lines for share in each.shares)))
    across, floor = WIDTH - left - right, top + high

    def x(place: int) -> float:
        return left + across * place / max(1, len(names) - 1)

    def y(share: float) -> float:
        return floor - high * share / most

    parts = []
    for tick in ticks(most):
        parts.append(line(left, y(tick), WIDTH - right, y(tick), "grid"))
        parts.append(text(left - 6, y(tick) + 4, f"{tick:.0%}", anchor="end", class_="tick"))
    every = -(-len(names) // 10)
    for place in range(0, len(names), every):
        parts.append(text(x(place), floor + 16, names[place], anchor="middle", class_="tick"))
    for each in lines:
        points = [(x(place), y(share)) for place, share in enumerate(each.shares)]
        parts.append(polyline(points, "line", each.opacity))
        for place, (share, point) in enumerate(zip(each.shares, points, strict=True)):
            about = f"{each.name}, {names[place]}: {share:.1%}"
            parts.append(dot(*point, class_="drafter", about=about, opacity=each.opacity))
    ends = _apart([y(each.shares[-1]) for each in lines], floor)
    for each, end in zip(lines, ends, strict=True):
        parts.append(text(WIDTH - right + 8, end + 4, each.name, class_="tick"))
    return drawing(WIDTH, floor + 24, label, *parts)


def _apart(heights: Sequence[float], lowest: float) -> list[float]:
    """The heights, moved so far that names at them do not cover each other."""
    placed, above = list(heights), lowest + _NAMES_APART
    for index in sorted(range(len(heights)), key=lambda index: -heights[index]):
        above = placed[index] = min(heights[index], above - _NAMES_APART)
    return placed


def shortened(name: str, most: int = 18) -> str:
    """The beginning and the end of a name that is too long for its column."""
    if len(name) <= most:
        return name
    end = most // 2
    return f"{name[: most - end - 1]}…{name[-end:]}"
