"""SVG: as much of it as three charts need. Colours are left to the page's style sheet."""

from html import escape


def tag(name: str, /, *inner: str, **attributes: object) -> str:
    """An element around markup. `stroke_width` is written stroke-width, `class_` is class."""
    named = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"'
        for key, value in attributes.items()
    )
    return f"<{name}{named}>{''.join(inner)}</{name}>" if inner else f"<{name}{named}/>"


def words(text: str) -> str:
    """Text as markup."""
    return escape(text, quote=False)


def picture(width: float, height: float, about: str, *inner: str) -> str:
    """A whole drawing; it shrinks with the page."""
    return tag(
        "svg",
        *inner,
        viewBox=f"0 0 {width:g} {height:g}",
        width=width,
        height=height,
        role="img",
        aria_label=about,
        xmlns="http://www.w3.org/2000/svg",
    )


def text(x: float, y: float, content: str, *, anchor: str = "start", class_: str = "label") -> str:
    """A line of text; anchor: start, middle or end."""
    return tag("text", words(content), x=x, y=y, text_anchor=anchor, class_=class_)


def bar(x: float, y: float, width: float, height: float, *, class_: str, about: str) -> str:
    """A rectangle that tells its figure when pointed at."""
    size = {"width": max(0.0, width), "height": max(0.0, height)}
    return tag("rect", tag("title", words(about)), x=x, y=y, rx=2, class_=class_, **size)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def steps(points: list[tuple[float, float]], class_: str) -> str:
    """A staircase: level up to each point, then straight up or down."""
    (x, y), *others = points
    path = f"M{x:.1f} {y:.1f}" + "".join(f"V{y:.1f}H{x:.1f}" for x, y in others)
    return tag("path", d=path, class_=class_)


def ticks(most: float, count: int = 4) -> list[float]:
    """About so many round numbers from 0 to `most`."""
    rough = max(most, 1e-12) / count
    power = 10.0
    while power > rough:
        power /= 10
    while power * 10 <= rough:
        power *= 10
    step = next(each * power for each in (1, 2, 2.5, 5, 10) if each * power >= rough)
    return [step * i for i in range(int(most / step + 1e-9) + 1)]


def _number(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
