"""Page parts: a page as one file without any other resource, and what stands on it."""

from collections.abc import Sequence
from importlib import resources

from localspec.bench.svg import escaped, tag

# How every page begins.
DOCTYPE = "<!DOCTYPE html>"


def page(title: str, *sections: str) -> str:
    """The text of the file; without its first line it is well-formed XML, too."""
    style = resources.files("localspec.bench") / "page.css"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", escaped(title)),
        tag("style", escaped(style.read_text(encoding="utf-8"))),
    )
    body = tag("body", tag("main", tag("h1", escaped(title)), *sections))
    return f"{DOCTYPE}\n{tag('html', head, body, lang='en')}\n"


def section(title: str, about: str) -> str:
    """The beginning of a section."""
    return tag("h2", escaped(title)) + tag("p", escaped(about))


def fact(text: str) -> str:
    """A line of small print."""
    return tag("p", escaped(text), class_="fact")


def warning(text: str) -> str:
    """A line that stands out."""
    return tag("p", escaped(text), class_="warning")


def figure(caption: str, chart: str) -> str:
    """A chart with its caption."""
    return tag("figure", tag("figcaption", escaped(caption)), chart)


def table(columns: Sequence[str], groups: Sequence[Sequence[Sequence[str]]]) -> str:
    """A table with a line between groups of rows."""
    head = tag("thead", tag("tr", *(tag("th", escaped(name)) for name in columns)))
    bodies = [
        tag("tbody", *(tag("tr", *(tag("td", escaped(cell)) for cell in row)) for row in rows))
        for rows in groups
    ]
    return tag("div", tag("table", head, *bodies), class_="scroll")
