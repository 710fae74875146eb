"""Line: a row of a text as it is laid out."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from textual.content import Content

_NOTHING = Content("")


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """content: what is seen; so many letters at its start are not of the text, such as a bullet.

    ground: a component class for the whole row, but for its margin. joint: what was in the text
    between this line and the one before.
    """

    content: Content = _NOTHING
    skip: int = 0
    ground: str = ""
    margin: Content = _NOTHING
    joint: str = "\n"

    def looks_like(self, other: "Line") -> bool:
        """Whether nobody sees a difference."""
        return (
            self.ground == other.ground
            and self.content.is_same(other.content)
            and self.margin.is_same(other.margin)
        )

    def within(self, margin: Content) -> "Line":
        """The same with more before it."""
        if self.ground:
            return replace(self, margin=margin + self.margin)
        return replace(self, content=margin + self.content, skip=self.skip + len(margin))

    def text(self, start: int, end: int) -> str:
        """Of the text, what is between these letters of the content; end -1 is its end."""
        return self.content.plain[max(start, self.skip) : None if end < 0 else end]


def wrapped(text: Content, width: int) -> Iterator[Line]:
    """Lines of words."""
    for line in text.split(allow_blank=True):
        rest, joint = line.plain, "\n"
        for part in line.wrap(width):
            yield Line(part, joint=joint)
            rest = rest[len(part.plain) :]
            joint = " " if rest[:1].isspace() else ""
            rest = rest.lstrip()
