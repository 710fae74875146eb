"""Status line: speed, acceptance rate, context and drafters, in one row."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from rich.cells import cell_len, set_cell_size
from textual.content import Content
from textual.widget import Widget

from localspec.conversation.events import Gauge
from localspec.stats import Stats

# Share of the context from which on it is shown as a warning.
_WARNING_SHARE = 0.8
_SEPARATOR = " · "
# States that the other fields show already.
_OBVIOUS_STATES = ("", "ready", "answering")
# Priorities of the fields, from the lowest.
_TTFT, _ACCEPT, _GAIN, _CONTEXT, _DRAFT, _STATE, _SPEED, _WARNING = range(8)
# Cells that the draft field needs at least: `draft: off`.
_MIN_DRAFT_WIDTH = 10


class Field(NamedTuple):
    """Part of the line.

    priority: where there is too little room, the field with the lowest priority is left out first.
    style: a component class.
    """

    text: str
    priority: int
    style: str = ""


class Status(NamedTuple):
    """What the line shows.

    plain_seconds: of one step without drafts. draft: names of the drafters. reason: why there are
    none. state: of the chat, such as "loading" or "reading".
    """

    stats: Stats | None = None
    gauge: Gauge | None = None
    plain_seconds: float | None = None
    draft: Sequence[str] = ()
    reason: str | None = None
    state: str = ""


def status_text(status: Status, width: int) -> str:
    """The line in a width of cells."""
    return _SEPARATOR.join(field.text for field in fitting(fields(status), width))


def fields(status: Status) -> list[Field]:
    """All fields of the line, in order."""
    found = [] if status.state in _OBVIOUS_STATES else [Field(status.state, _STATE)]
    found += _speed(status.stats, status.plain_seconds) if status.stats else []
    found += [_context(status.gauge)] if status.gauge and status.gauge.size else []
    names = " or ".join(status.draft) or (f"off ({status.reason})" if status.reason else "off")
    return [*found, Field(f"draft: {names}", _DRAFT)]


def fitting(found: Sequence[Field], width: int) -> list[Field]:
    """The fields that fit in a width of cells. The draft field is cut before it is left out."""
    kept = [*found]
    while kept and (excess := _length(kept) - width) > 0:
        lowest = min(kept, key=lambda field: field.priority)
        room = cell_len(lowest.text) - excess
        if lowest.priority == _DRAFT and room > _MIN_DRAFT_WIDTH:
            text = set_cell_size(lowest.text, room - 1).rstrip() + "…"
            kept[kept.index(lowest)] = lowest._replace(text=text)
        else:
            kept.remove(lowest)
    return kept


def _length(found: Sequence[Field]) -> int:
    return cell_len(_SEPARATOR.join(field.text for field in found))


def _speed(stats: Stats, plain_seconds: float | None) -> Iterator[Field]:
    rate, accepted, per_step = stats.tokens_per_second, stats.acceptance_rate, stats.tokens_per_step
    if rate is not None:
        yield Field(f"{rate:.1f} tok/s", _SPEED)
    if rate is not None and plain_seconds is not None:
        yield Field(f"{rate * plain_seconds:.1f}x plain", _GAIN)
    if accepted is not None and per_step is not None:
        yield Field(f"accept {100 * accepted:.0f} % ({per_step:.1f} tok/step)", _ACCEPT)
    if stats.seconds.first_token is not None:
        yield Field(f"TTFT {stats.seconds.first_token:.2f} s", _TTFT)


def _context(gauge: Gauge) -> Field:
    text = f"ctx {gauge.used:,}/{gauge.size:,}"
    if gauge.used >= gauge.size:
        return Field(f"{text} full", _WARNING, ".status--full")
    if gauge.share >= _WARNING_SHARE:
        return Field(text, _WARNING, ".status--warning")
    return Field(text, _CONTEXT)


class StatusLine(Widget):
    """One row, always visible. Fields that do not fit are left out."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"status--warning", "status--full"}
    DEFAULT_CSS = """
    StatusLine {
        height: 1;
        padding: 0 1;
        color: $foreground 80%;
        & > .status--warning { color: $text-warning; text-style: bold; }
        & > .status--full { color: $text-error; text-style: bold underline; }
        &:ansi { color: ansi_default; }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._fields: list[Field] = []

    def show(self, status: Status) -> None:
        """Show a status."""
        found = fields(status)
        if found != self._fields:
            self._fields = found
            self.refresh()

    def render(self) -> Content:
        kept = fitting(self._fields, self.size.width)
        return Content(_SEPARATOR).join(Content.styled(each.text, each.style) for each in kept)
