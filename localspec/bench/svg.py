"""SVG: the elements that the charts need. Colours come from the style sheet of the page."""

from collections.abc import Sequence
from html import escape

from localspec.utils.format import without_controls


def tag(name: str, /, *inner: str, **attributes: object) -> str:
    """An element around markup. Attribute `stroke_width` becomes stroke-width, `class_` class."""
    named = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_readable(_number(value)))}"'
        for key, value in attributes.items()
    )
    return f"<{name}{named}>{''.join(inner)}</{name}>" if inner else f"<{name}{named}/>"


def escaped(text: str) -> str:
    """A text as markup, whatever it has: names of files and what models write come here."""
    return escape(_readable(text), quote=False)


def drawing(width: float, height: float, label: str, *inner: str) -> str:
    """A whole SVG, which shrinks with the page. label: for screen readers."""
    return tag(
        "svg",
        *inner,
        viewBox=f"0 0 {width:g} {height:g}",
        width=width,
        height=height,
        role="img",
        aria_label=label,
        xmlns="http://www.w3.org/2000/svg",
    )


def text(x: float, y: float, content: str, *, anchor: str = "start", class_: str = "label") -> str:
    """A line of text; anchor: start, middle or end."""
    return tag("text", escaped(content), x=x, y=y, text_anchor=anchor, class_=class_)


def bar(x: float, y: float, width: float, height: float, *, class_: str, about: str) -> str:
    """A rectangle; `about` is shown when the pointer is over it."""
    size = {"width": max(0.0, width), "height": max(0.0, height)}
    return tag("rect", tag("title", escaped(about)), x=x, y=y, rx=2, class_=class_, **size)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def staircase(points: list[tuple[float, float]], class_: str) -> str:
    """A line through the points that is level up to each point, and then rises or falls."""
    (x, y), *others = points
    path = f"M{x:.1f} {y:.1f}" + "".join(f"V{y:.1f}H{x:.1f}" for x, y in others)
    return tag("path", d=path, class_=class_)


def polyline(points: Sequence[tuple[float, float]], class_: str, opacity: float = 1.0) -> str:
    """Straight lines from point to point."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return tag("polyline", points=path, class_=class_, opacity=f"{opacity:.2f}")


def dot(x: float, y: float, *, class_: str, about: str, opacity: float = 1.0) -> str:
    """A point; `about` is shown when the pointer is over it."""
    title = tag("title", escaped(about))
    return tag("circle", title, cx=x, cy=y, r=3, class_=class_, opacity=f"{opacity:.2f}")


def ticks(most: float) -> list[float]:
    """About four round numbers from 0 to `most`."""
    rough = max(most, 1e-12) / 4
    power = 10.0
    while power > rough:
        power /= 10
    while power * 10 <= rough:
        power *= 10
    step = next(each * power for each in (1, 2, 2.5, 5, 10) if each * power >= rough)
    return [step * i for i in range(int(most / step + 1e-9) + 1)]


def _readable(text: str) -> str:
    """A text that UTF-8 and XML can hold."""
    return without_controls(text).encode(errors="replace").decode()


def _number(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
