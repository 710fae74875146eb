"""Line: one row of a text that is laid out."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from textual.content import Content

_EMPTY = Content("")


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """content: what the row shows. prefix: how many characters at its start, such as those of a
    bullet, are not text that can be selected. row_style: component class of the whole row, without
    its margin. margin: shown before the content. separator: what the source has between the line
    above and this one.
    """

    content: Content = _EMPTY
    prefix: int = 0
    row_style: str = ""
    margin: Content = _EMPTY
    separator: str = "\n"

    def looks_like(self, other: "Line") -> bool:
        """Whether both lines look the same on the screen."""
        return (
            self.row_style == other.row_style
            and self.content.is_same(other.content)
            and self.margin.is_same(other.margin)
        )

    def indented(self, margin: Content) -> "Line":
        """This line with more margin before it."""
        if self.row_style:
            return replace(self, margin=margin + self.margin)
        return replace(self, content=margin + self.content, prefix=self.prefix + len(margin))

    def text(self, start: int, end: int) -> str:
        """The text between two character indices of the content; end -1 is its end."""
        return self.content.plain[max(start, self.prefix) : None if end < 0 else end]


def wrapped(text: Content, width: int) -> Iterator[Line]:
    """Wrap a text between words, in a width of cells."""
    for line in text.split(allow_blank=True):
        rest, separator = line.plain, "\n"
        for part in line.wrap(width):
            yield Line(part, separator=separator)
            rest = rest[len(part.plain) :]
            separator = " " if rest[:1].isspace() else ""
            rest = rest.lstrip()
