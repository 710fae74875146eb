"""What `localspec pull` shows while it fetches: bars on a terminal, else lines."""

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

from localspec.cli.output import join_facts, write_note
from localspec.hub.cache_layout import cached_files
from localspec.hub.download import FileProgress
from localspec.hub.listing import RemoteModel
from localspec.hub.transfer import TransferState
from localspec.utils.format import format_bytes, one_line

# The least seconds between two lines about the progress of a file.
_MIN_INTERVAL = 2.0


class Display(AbstractContextManager["Display"]):
    """Shows the progress of files; called with each report of the download."""

    def __call__(self, progress: FileProgress) -> None:
        raise NotImplementedError

    def __exit__(self, *_exc: object) -> None:
        """Leave on the screen what was shown."""


class NoDisplay(Display):
    """Shows nothing, for when nothing is to be fetched."""

    def __call__(self, progress: FileProgress) -> None: ...


class ProgressBars(Display):
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
        self._reasons: dict[tuple[str, str], str] = {}
        for cached in (file for model in models for file in cached_files(model)):
            key, here = (str(cached.model.repository), cached.file.path), cached.bytes_on_disk
            # What is here already must not count as speed.
            self._bars[key] = self._columns.add_task(
                one_line(cached.file.path), total=cached.file.size, completed=here
            )
            self._done[key] = here
        self._all = self._columns.add_task(
            "all",
            total=sum(model.size for model in models),
            completed=sum(self._done.values()),
            visible=len(self._bars) > 1,
        )

    def __enter__(self) -> "ProgressBars":
        self._columns.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._columns.stop()

    def __call__(self, progress: FileProgress) -> None:
        key = progress.repository, progress.file
        still = progress.state in ("waiting", "silent", "checking")
        file = one_line(progress.file)
        about = f"{progress.state}: {file}" if still else file
        if progress.reason and progress.reason != self._reasons.get(key):
            self._columns.console.print(f"{file}: {progress.reason}", markup=False)
        self._reasons[key] = progress.reason
        self._columns.update(self._bars[key], completed=progress.done, description=about)
        self._columns.advance(self._all, progress.done - self._done[key])
        self._done[key] = progress.done


@dataclass(slots=True)
class _Shown:
    """What the lines about a file have shown so far.

    start: bytes that were here when it came into this state. begun, latest: when the first and the
    latest line about this state were written, in seconds. tenth: the latest tenth that was shown.
    """

    state: TransferState
    reason: str
    start: int
    begun: float
    latest: float
    tenth: int


class ProgressLines(Display):
    """A line whenever the state of a file changes, and at its tenths, at most every two seconds."""

    def __init__(
        self, write: Callable[[str], None] = write_note, clock: Callable[[], float] = monotonic
    ) -> None:
        self._write = write
        self._clock = clock
        self._shown: dict[tuple[str, str], _Shown] = {}

    def __call__(self, progress: FileProgress) -> None:
        if progress.state == "asking":  # which takes a moment, or ends in silence
            return
        key, now = (progress.repository, progress.file), self._clock()
        shown, tenth = self._shown.get(key), 10 * progress.done // progress.total
        line = ""
        state, reason = progress.state, progress.reason
        if shown is None or (shown.state, shown.reason) != (state, reason):
            self._shown[key] = _Shown(state, reason, progress.done, now, now, tenth)
            # A file that was here before the pull is not worth a line.
            line = _state_text(progress) if shown or progress.state != "done" else ""
        elif tenth > shown.tenth and now - shown.latest >= _MIN_INTERVAL:
            shown.tenth, shown.latest = tenth, now
            speed = (progress.done - shown.start) / (now - shown.begun)
            line = _progress_text(progress, speed)
        if line:
            self._write(f"{progress.file}: {line}")


def display_for(models: Sequence[RemoteModel]) -> Display:
    """Return bars where stderr is a terminal that can redraw a line, else lines."""
    if sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return ProgressLines()
    return ProgressBars(models, Console(stderr=True, highlight=False, emoji=False))


def _state_text(progress: FileProgress) -> str:
    """Return what the state of a file means."""
    match progress.state:
        case "fetching":
            return f"fetching {format_bytes(progress.total)}"
        case "checking":
            return "checking"
        case "done":
            return "complete, its SHA-256 is right"
        case _:
            return progress.reason


def _progress_text(progress: FileProgress, speed: float) -> str:
    """Return how much of a file is here. speed: bytes per second."""
    left = (progress.total - progress.done) / speed
    return join_facts(
        [
            f"{progress.done / progress.total:.0%}",
            f"{format_bytes(progress.done)} of {format_bytes(progress.total)}",
            f"{format_bytes(int(speed))}/s",
            f"{left / 60:.0f} min left" if left >= 90 else f"{left:.0f} s left",
        ]
    )
