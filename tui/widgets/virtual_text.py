"""Paper: a text of any length in one widget, which renders only the lines that are seen."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from textual.content import Content
from textual.geometry import Region, Size
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import Visual

from localspec_tui.markdown.line import Line
from localspec_tui.widgets.single_layout import OnceLaid
from localspec_tui.widgets.throttle import Throttle

# With and without a scrollbar beside it.
_WIDTHS = 2

Part = TypeVar("Part")


@dataclass(slots=True)
class _Laid:
    """Lines of one width. kept: those of so many parts that are done. others: of the open ones."""

    kept: list[Line] = field(default_factory=list)
    parts: int = 0
    others: list[Line] | None = None

    def __len__(self) -> int:
        return len(self.kept) + len(self.others or ())

    def line(self, row: int) -> Line:
        return self.kept[row] if row < len(self.kept) else (self.others or [])[row - len(self.kept)]


class Paper(OnceLaid, Generic[Part]):
    """Grows at its end, at a pace that leaves time for everything else.

    Its text is made of parts. Those that are done are laid out once for each width; those that are
    open, each time it has grown.
    """

    ALLOW_SELECT: ClassVar[bool] = True
    DEFAULT_CSS = """
    Paper {
        width: 1fr;
        height: auto;
    }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        # Looking for links in each line takes as long as all else.
        self.auto_links = False
        self._laid: dict[int, _Laid] = {}
        self._pace = Throttle(self, self.flush)

    # For those that say what is on it.

    def take(self) -> None:
        """Make parts of what was appended since the last time."""
        raise NotImplementedError

    @property
    def parts(self) -> tuple[Sequence[Part], Sequence[Part]]:
        """Those that stay as they are, and those that may still change."""
        raise NotImplementedError

    def lay(self, parts: Sequence[Part], width: int, after: Part | None) -> Iterable[Line]:
        """Lines of these parts. after: the part above them."""
        raise NotImplementedError

    # For those who read it.

    def flush(self) -> None:
        """Show all that was appended."""
        width = self.size.width
        laid = self._at(width) if width else None
        first, before = (len(laid.kept), laid.others or []) if laid else (0, [])
        self.take()
        for each in self._laid.values():
            each.others = None
        if laid is None:
            self.refresh(layout=True)
            return
        self._at(width)
        after = [laid.line(row) for row in range(first, len(laid))]
        same = _alike(before, after)
        rows = max(len(before), len(after)) - same
        if rows:
            # A layout takes several times as long as drawing a few rows.
            changed = Region(0, first + same, width, rows)
            self.refresh(changed, layout=len(before) != len(after))

    def forget_layout(self) -> None:
        """Parts that were done have changed, or look otherwise now."""
        self._laid.clear()
        self.refresh(layout=True)

    def lines(self, width: int) -> Iterator[Line]:
        """All of it at this width, in cells."""
        laid = self._at(width)
        return (laid.line(row) for row in range(len(laid)))

    def _at(self, width: int) -> _Laid:
        laid = self._laid.get(width)
        if laid is None:
            while len(self._laid) >= _WIDTHS:
                del self._laid[next(iter(self._laid))]
            laid = self._laid[width] = _Laid()
        if laid.others is None:
            done, others = self.parts
            before = done[laid.parts - 1] if laid.parts else None
            laid.kept += self.lay(done[laid.parts :], width, before)
            laid.parts = len(done)
            laid.others = [*self.lay(others, width, done[-1] if done else None)]
        return laid

    # For Textual.

    def on_mount(self) -> None:
        self.flush()

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._at(width)) if width else 0

    def render_line(self, y: int) -> Strip:
        width, style = self.size.width, self.visual_style
        laid = self._at(width)
        if y >= len(laid):
            return Strip.blank(width, style.rich_style)
        line = laid.line(y)
        ground = self.get_visual_style(line.ground) if line.ground else style
        strip = self._strip(self._selected(line, y), ground).apply_offsets(0, y)
        if line.margin:
            strip = Strip.join((self._strip(line.margin, style), strip))
        return strip.adjust_cell_length(width, ground.rich_style)

    def _strip(self, content: Content, style: Style) -> Strip:
        width = content.cell_length
        strips = Visual.to_strips(self, content, width, 1, style, apply_selection=False)
        return strips[0] if strips else Strip([], 0)

    # Selecting with the mouse.

    def _selected(self, line: Line, row: int) -> Content:
        selection = self.text_selection
        span = selection.get_span(row) if selection else None
        if span is None:
            return line.content
        start, end = span
        style = Style.from_styles(self.screen.get_component_styles("screen--selection"))
        return line.content.stylize(style, max(start, line.skip), None if end < 0 else end)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text as it was before it was wrapped."""
        text = ""
        for row, line in enumerate(self.lines(self.size.width)):
            if (span := selection.get_span(row)) is not None:
                text += (line.joint if text else "") + line.text(*span)
        return text, "\n"


def _alike(before: Sequence[Line], after: Sequence[Line]) -> int:
    """How many of the first lines look as they did."""
    pairs = enumerate(zip(before, after, strict=False))
    differing = (row for row, (a, b) in pairs if not a.looks_like(b))
    return next(differing, min(len(before), len(after)))
