"""How far a pull is: bars on a terminal, else a line now and then."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import monotonic

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as Columns
from rich.table import Column

from localspec.cli.output import joined, say
from localspec.hub.cache_layout import places
from localspec.hub.download import Progress
from localspec.hub.listing import RemoteModel
from localspec.hub.transfer import State
from localspec.utils.format import format_bytes

# Seconds between two lines about a file, if its next tenth comes that soon.
_SOONEST = 2.0


class Display(AbstractContextManager["Display"]):
    """Shows how far files are."""

    def __call__(self, progress: Progress) -> None:
        raise NotImplementedError

    def __exit__(self, *_exc: object) -> None:
        """What was shown stays."""


class Silence(Display):
    """Shows nothing, where nothing is fetched."""

    def __call__(self, progress: Progress) -> None: ...


class Bars(Display):
    """A bar per file, and one for all of them."""

    def __init__(self, models: Sequence[RemoteModel], console: Console) -> None:
        name = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        self._columns = Columns(
            TextColumn("{task.description}", markup=False, table_column=name),
            BarColumn(16),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console,
            expand=True,
        )
        self._bars: dict[tuple[str, str], TaskID] = {}
        self._done: dict[tuple[str, str], int] = {}
        for place in (place for model in models for place in places(model)):
            key, here = (str(place.model.repository), place.file.path), place.fetched
            # What is here already is no speed.
            self._bars[key] = self._columns.add_task(
                place.file.path, total=place.file.size, completed=here
            )
            self._done[key] = here
        self._all = self._columns.add_task(
            "all",
            total=sum(model.size for model in models),
            completed=sum(self._done.values()),
            visible=len(self._bars) > 1,
        )

    def __enter__(self) -> "Bars":
        self._columns.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._columns.stop()

    def __call__(self, progress: Progress) -> None:
        key = progress.repository, progress.file
        still = progress.state in ("waiting", "checking")
        about = f"{progress.state}: {progress.file}" if still else progress.file
        self._columns.update(self._bars[key], completed=progress.done, description=about)
        self._columns.advance(self._all, progress.done - self._done[key])
        self._done[key] = progress.done


@dataclass(slots=True)
class _Told:
    """What was last said of a file: that it came into a state, with so many bytes, or how far.

    begun, when: the time of the first and the last line about this state.
    """

    state: State
    start: int
    begun: float
    when: float
    tenth: int


class Lines(Display):
    """A line whenever a file comes into another state, and at every tenth if not too often."""

    def __init__(
        self, say: Callable[[str], None] = say, clock: Callable[[], float] = monotonic
    ) -> None:
        self._say = say
        self._clock = clock
        self._told: dict[tuple[str, str], _Told] = {}

    def __call__(self, progress: Progress) -> None:
        key, now = (progress.repository, progress.file), self._clock()
        told, tenth = self._told.get(key), 10 * progress.done // progress.total
        about = ""
        if told is None or told.state != progress.state:
            self._told[key] = _Told(progress.state, progress.done, now, now, tenth)
            # Of a file that was whole before there is nothing to say.
            about = _news(progress) if told or progress.state != "done" else ""
        elif tenth > told.tenth and now - told.when >= _SOONEST:
            told.tenth, told.when = tenth, now
            about = _advance(progress, (progress.done - told.start) / (now - told.begun))
        if about:
            self._say(f"{progress.file}: {about}")


def display_for(models: Sequence[RemoteModel]) -> Display:
    """Bars where stderr is a terminal that can redraw a line, else lines."""
    if sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return Lines()
    return Bars(models, Console(stderr=True, highlight=False, emoji=False))


def _news(progress: Progress) -> str:
    """What begins."""
    match progress.state:
        case "fetching":
            return f"fetching {format_bytes(progress.total)}"
        case "waiting":
            return "waiting for another process that fetches it, or to ask the server again"
        case "checking":
            return "checking"
        case "done":
            return "whole and right"


def _advance(progress: Progress, speed: float) -> str:
    """speed: bytes per second."""
    left = (progress.total - progress.done) / speed
    return joined(
        [
            f"{progress.done / progress.total:.0%}",
            f"{format_bytes(progress.done)} of {format_bytes(progress.total)}",
            f"{format_bytes(int(speed))}/s",
            f"{left / 60:.0f} min left" if left >= 90 else f"{left:.0f} s left",
        ]
    )
