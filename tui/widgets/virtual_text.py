"""Virtual text: a text of any length in one widget that renders only the visible lines."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from textual.content import Content
from textual.geometry import Region, Size
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import Visual

from localspec_tui.common_prefix import common_prefix_length
from localspec_tui.found_text import Span, spans_by_row
from localspec_tui.markdown.line import Line
from localspec_tui.widgets.single_layout import SingleLayout
from localspec_tui.widgets.throttle import Throttle

# Widths to keep lines of: with and without a scrollbar beside the text.
_MAX_WIDTHS = 2

Part = TypeVar("Part")


@dataclass(slots=True)
class _LineCache:
    """The lines of one width.

    final: lines of the first `final_parts` parts, which never change. open: lines of the other
    parts; None if they must be laid out again.
    """

    final: list[Line] = field(default_factory=list)
    final_parts: int = 0
    open: list[Line] | None = None

    def __len__(self) -> int:
        return len(self.final) + len(self.open or ())

    def line(self, row: int) -> Line:
        final = len(self.final)
        return self.final[row] if row < final else (self.open or [])[row - final]


class VirtualText(SingleLayout, Generic[Part]):
    """Grows at its end. A throttle limits how often it is drawn meanwhile.

    The text consists of parts. Final parts are laid out once for each width, open parts whenever
    the text has grown.
    """

    ALLOW_SELECT: ClassVar[bool] = True
    COMPONENT_CLASSES: ClassVar[set[str]] = {"text--found", "text--found-here"}
    DEFAULT_CSS = """
    VirtualText {
        width: 1fr;
        height: auto;
        /* The lines are wrapped already. */
        text-wrap: nowrap;
        text-overflow: clip;
        & > .text--found { background: $warning 35%; text-style: underline; }
        & > .text--found-here {
            background: $warning;
            color: black;
            text-style: bold underline;
        }
        &:ansi > .text--found { background: ansi_default; }
        &:ansi > .text--found-here { background: ansi_yellow; color: ansi_black; }
        &:nocolor > .text--found-here { text-style: bold italic underline; }
    }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        # To search each line for links takes as long as everything else.
        self.auto_links = False
        self._caches: dict[int, _LineCache] = {}
        self._throttle = Throttle(self, self.flush)
        self._selection: Selection | None = None
        # What is looked for, the number of the place that is shown, and where all places are.
        self._pattern: re.Pattern[str] | None = None
        self._shown: int | None = None
        self._found: dict[int, dict[int, list[Span]]] = {}

    # For subclasses to implement.

    def take_appended(self) -> None:
        """Make parts of the text that was appended since the last call."""
        raise NotImplementedError

    @property
    def parts(self) -> tuple[Sequence[Part], Sequence[Part]]:
        """The final parts, and the open parts after them."""
        raise NotImplementedError

    def layout_lines(self, parts: Sequence[Part], width: int, after: Part | None) -> Iterable[Line]:
        """Lay out parts in a width of cells. after: the part above them; None at the top."""
        raise NotImplementedError

    # For users of the widget.

    def flush(self) -> None:
        """Show all appended text now."""
        width = self.size.width
        cache = self._cache(width) if width else None
        final, before = (len(cache.final), cache.open or []) if cache else (0, [])
        self.take_appended()
        self._found.clear()
        for each in self._caches.values():
            each.open = None
        if cache is None:
            self.refresh(layout=True)
            return
        self._cache(width)
        after = [cache.line(row) for row in range(final, len(cache))]
        same = common_prefix_length(before, after, Line.looks_like)
        rows = max(len(before), len(after)) - same
        if rows:
            # A layout takes several times as long as drawing a few rows.
            changed = Region(0, final + same, width, rows)
            self.refresh(changed, layout=len(before) != len(after))

    def invalidate_layout(self) -> None:
        """Lay out all parts again: final parts or their styles have changed."""
        self._caches.clear()
        self._found.clear()
        self.refresh(layout=True)

    def mark(self, pattern: re.Pattern[str] | None, shown: int | None) -> None:
        """Mark what a pattern finds, if it is given. shown: the number of the place in sight."""
        if (pattern, shown) != (self._pattern, self._shown):
            self._pattern, self._shown = pattern, shown
            self._found.clear()
            self.refresh()

    @property
    def found_row(self) -> int:
        """The row of the place in sight, or of the last one before it; 0 if there is none."""
        spans = self._found_at(self.size.width) if self.size.width else {}
        rows = {each.number: row for row, found in reversed(spans.items()) for each in found}
        return rows.get(min(self._shown or 0, max(rows, default=0)), 0)

    def _found_at(self, width: int) -> dict[int, list[Span]]:
        """Where the pattern finds something at a width in cells, by row."""
        if self._pattern is None:
            return {}
        if width not in self._found:
            self._found[width] = spans_by_row(self.lines(width), self._pattern)
        return self._found[width]

    def lines(self, width: int) -> Iterator[Line]:
        """All lines at a width in cells."""
        cache = self._cache(width)
        return (cache.line(row) for row in range(len(cache)))

    def _cache(self, width: int) -> _LineCache:
        """The lines of a width, laid out as far as they were not yet."""
        cache = self._caches.get(width)
        if cache is None:
            while len(self._caches) >= _MAX_WIDTHS:
                del self._caches[next(iter(self._caches))]
            cache = self._caches[width] = _LineCache()
        if cache.open is None:
            final, others = self.parts
            above = final[cache.final_parts - 1] if cache.final_parts else None
            cache.final += self.layout_lines(final[cache.final_parts :], width, above)
            cache.final_parts = len(final)
            cache.open = [*self.layout_lines(others, width, final[-1] if final else None)]
        return cache

    # For Textual.

    def selection_updated(self, selection: Selection | None) -> None:
        """Draw another selection. All selected widgets are told of each move of the mouse."""
        if selection != self._selection:
            self._selection = selection
            self.refresh()

    def on_mount(self) -> None:
        self.flush()

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._cache(width)) if width else 0

    def render_line(self, y: int) -> Strip:
        width, style = self.size.width, self.visual_style
        cache = self._cache(width)
        if y >= len(cache):
            return Strip.blank(width, style.rich_style)
        line = cache.line(y)
        row_style = self.get_visual_style(line.row_style) if line.row_style else style
        content = self._with_selection(line, self._with_found(line.content, y), y)
        strip = self._strip(content, row_style).apply_offsets(0, y)
        if line.margin:
            strip = Strip.join((self._strip(line.margin, style), strip))
        return strip.adjust_cell_length(width, row_style.rich_style)

    def _strip(self, content: Content, style: Style) -> Strip:
        width = content.cell_length
        strips = Visual.to_strips(self, content, width, 1, style, apply_selection=False)
        return strips[0] if strips else Strip([], 0)

    def _with_found(self, content: Content, row: int) -> Content:
        for start, end, number in self._found_at(self.size.width).get(row, ()):
            name = "text--found-here" if number == self._shown else "text--found"
            style = self.get_visual_style(name)
            content = content.stylize(style, start, end)
        return content

    # Selection with the mouse.

    def _with_selection(self, line: Line, content: Content, row: int) -> Content:
        selection = self.text_selection
        span = selection.get_span(row) if selection else None
        if span is None:
            return content
        start, end = span
        style = Style.from_styles(self.screen.get_component_styles("screen--selection"))
        return content.stylize(style, max(start, line.prefix), None if end < 0 else end)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text as it was before it was wrapped."""
        text = ""
        for row, line in enumerate(self.lines(self.size.width)):
            if (span := selection.get_span(row)) is not None:
                text += (line.separator if text else "") + line.text(*span)
        return text, "\n"
