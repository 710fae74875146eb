"""Line: one row of a text that is laid out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rich.cells import cell_len
from textual.content import Content

_EMPTY = Content("")
_TAB = 8


class Cell(NamedTuple):
    """A part of a line that is read with the same column of the lines around it.

    start, end: characters of the content. separator: what the source has between this part and the
    one above it in its column.
    """

    start: int
    end: int
    separator: str
    column: int

    def moved(self, by: int) -> "Cell":
        """The part of a line with so many more characters before it."""
        return self._replace(start=self.start + by, end=self.end + by)


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """content: what the row shows. prefix: how many characters at its start, such as those of a
    bullet, are not text that can be selected. row_style: component class of the whole row, without
    its margin. margin: shown before the content. separator: what the source has between the line
    above and this one. marker: how many characters before the text are the marker of a list item.
    columns: the parts of a line of a table; none for a rule. continues: whether the row of the
    table began above.
    """

    content: Content = _EMPTY
    prefix: int = 0
    row_style: str = ""
    margin: Content = _EMPTY
    separator: str = "\n"
    marker: int = 0
    columns: tuple[Cell, ...] | None = None
    continues: bool = False

    @property
    def cells(self) -> Sequence[Cell]:
        """The parts that are read one after the other; edges and rules are none."""
        if self.columns is not None:
            return self.columns
        return (Cell(self.prefix - self.marker, len(self.content), self.separator, 0),)

    def looks_like(self, other: "Line") -> bool:
        """Whether both lines look the same on the screen."""
        return (
            self.row_style == other.row_style
            and self.content.is_same(other.content)
            and self.margin.is_same(other.margin)
        )

    def indented(self, margin: Content, *, is_marker: bool = False) -> "Line":
        """This line with more margin before it. is_marker: whether that marks a list item."""
        if self.row_style:
            return replace(self, margin=margin + self.margin)
        more = len(margin)
        is_marker = is_marker and self.marker == self.prefix
        return replace(
            self,
            content=margin + self.content,
            prefix=self.prefix + more,
            marker=self.marker + more * is_marker,
            columns=self.columns and tuple(each.moved(more) for each in self.columns),
        )

    def text(self, start: int, end: int) -> str:
        """The text between two character indices of the content; end -1 is its end."""
        return self.content.plain[max(start, self.prefix) : None if end < 0 else end]


def wrapped(text: Content, width: int) -> Iterator[Line]:
    """Wrap a text between words, in a width of cells."""
    for line in text.expand_tabs(_TAB).split(allow_blank=True):
        if line.cell_length <= width:
            yield Line(line)
            continue
        rest, separator = line.plain, "\n"
        for part in line.wrap(width):
            yield Line(part, separator=separator)
            rest = rest[len(part.plain) :]
            separator = " " if rest[:1].isspace() else ""
            rest = rest.lstrip()


def folded(text: Content, width: int) -> Iterator[Content]:
    """Cut a line into parts of a width of cells, each as long as possible.

    Textual's own leaves out what is behind characters that take no cell.
    """
    rest = text
    while rest.cell_length > width:
        length = _fitting(rest.plain, width)
        yield rest[:length]
        rest = rest[length:]
    yield rest


def _fitting(text: str, width: int) -> int:
    """How many characters of a text fit in a width of cells; one at least."""
    length = min(len(text), width)
    while (excess := cell_len(text[:length]) - width) > 0:
        length -= (excess + 1) // 2
    while length < len(text) and cell_len(text[: length + 1]) <= width:
        length += 1
    return max(length, 1)
