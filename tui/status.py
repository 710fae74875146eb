"""Status: speed, acceptance rate, context and drafters, as the parts of a line."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from localspec.conversation.events import Gauge
from localspec.drafters.model_free import MODEL_FREE
from localspec.stats import ENOUGH_STEPS, Stats
from localspec_tui.labels import gain_text, speed_text

# Share of the context from which on it is shown as a warning.
_WARNING_SHARE = 0.8
SEPARATOR = " · "
# States that the other fields show already.
_OBVIOUS_STATES = ("", "ready", "answering")
# Priorities of the fields, from the lowest.
_TTFT, _ACCEPT, _GAIN, _CONTEXT, _DRAFT, _STATE, _SPEED, _WARNING = range(8)
# Drafting is said not to pay when at most this share of the steps had a draft, and these gained
# less than this.
_RARELY, _LEAST_GAIN = 1 / 8, 1.05
# Cells that the draft field needs at least: `draft: off`.
_MIN_DRAFT_WIDTH = 10


class Field(NamedTuple):
    """Part of the line.

    priority: where there is too little room, the field with the lowest priority is left out first.
    style: a component class. short: the text where the line has too little room for all of it.
    """

    text: str
    priority: int
    style: str = ""
    short: str = ""


class Status(NamedTuple):
    """What the line shows.

    draft: names of the drafters. reason: why there are none. state: of the chat, such as "loading"
    or "reading". drafted: whether `stats` are of an answer for which these drafters drafted.
    """

    stats: Stats | None = None
    gauge: Gauge | None = None
    draft: Sequence[str] = ()
    reason: str | None = None
    state: str = ""
    drafted: bool = True


def status_text(status: Status, width: int) -> str:
    """The line in a width of cells."""
    return SEPARATOR.join(field.text for field in fitting(fields(status), width))


def in_words(status: Status) -> str:
    """The line in words, as a screen reader reads it out."""
    stats, gauge, parts = status.stats, status.gauge, []
    if stats and stats.tokens_per_second:
        parts.append(f"{stats.tokens_per_second:.1f} tokens per second")
    if stats and stats.x_plain is not None:
        parts.append(gain_text(stats.x_plain))
    if stats and stats.acceptance_rate is not None:
        parts.append(f"{stats.acceptance_rate:.0%} of the drafted tokens accepted")
    parts.append(f"drafter: {_draft(status)}")
    if gauge and gauge.size:
        parts.append(f"context: {gauge.used:,} of {gauge.size:,} tokens")
    return ", ".join(parts)


def fields(status: Status) -> list[Field]:
    """All fields of the line, in order."""
    found = [] if status.state in _OBVIOUS_STATES else [Field(status.state, _STATE)]
    found += _speed(status.stats) if status.stats else []
    found += [_context(status.gauge)] if status.gauge and status.gauge.size else []
    return [*found, Field(f"draft: {_draft(status)}", _DRAFT)]


def fitting(found: Sequence[Field], width: int) -> list[Field]:
    """The fields that fit in a width of cells. The draft field is cut before it is left out."""
    kept = [*found]
    if _length(kept) > width:
        kept = [field._replace(text=field.short or field.text) for field in kept]
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
    return cell_len(SEPARATOR.join(field.text for field in found))


def _speed(stats: Stats) -> Iterator[Field]:
    rate, accepted, per_step = stats.tokens_per_second, stats.acceptance_rate, stats.tokens_per_step
    if rate:
        yield Field(speed_text(rate), _SPEED)
    if stats.x_plain is not None:
        yield Field(gain_text(stats.x_plain), _GAIN)
    if accepted is not None and per_step is not None:
        text = f"accept {accepted:.0%}"
        yield Field(f"{text} ({per_step:.1f} tok/step)", _ACCEPT, short=text)
    if stats.seconds.first_token is not None:
        yield Field(f"TTFT {stats.seconds.first_token:.2f} s", _TTFT)


def _draft(status: Status) -> str:
    """The drafters, or why there are none, or why they do not draft."""
    names, stats = " or ".join(status.draft), status.stats
    if not names:
        return f"off ({status.reason})" if status.reason else "off"
    if stats is None or not status.drafted or not _drafts_rarely(stats):
        return names
    if MODEL_FREE.keys() >= set(status.draft):
        return f"{names} (nothing to copy)"
    plain = stats.plain_step
    return "none pays" + (f" (target {1000 * plain:.1f} ms/token)" if plain else "")


def _drafts_rarely(stats: Stats) -> bool:
    return (
        stats.steps >= ENOUGH_STEPS
        and stats.drafting_steps <= _RARELY * stats.steps
        and (stats.gain or 1.0) < _LEAST_GAIN
    )


def _context(gauge: Gauge) -> Field:
    text = f"ctx {gauge.used:,}/{gauge.size:,}"
    if gauge.used >= gauge.size:
        return Field(f"{text} full", _WARNING, ".status--full")
    if gauge.share >= _WARNING_SHARE:
        return Field(text, _WARNING, ".status--warning")
    return Field(text, _CONTEXT)
