"""Download models from the Hub into its cache on this disk, several files at a time."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

from localspec.errors import LocalspecError
from localspec.hub.cache_layout import (
    CachedFile,
    begin_main,
    cached_files,
    disk_errors_explained,
    free_space,
    set_main,
)
from localspec.hub.listing import RemoteModel
from localspec.hub.retry import SILENCE, Arrivals
from localspec.hub.store import hub_cache
from localspec.hub.transfer import ProgressCallback, Transfer, TransferState, TransferStopped
from localspec.utils.format import format_bytes

_CONNECTIONS = 4
_REPORT_INTERVAL = 0.1  # seconds, per file
_STOP_TIMEOUT = 0.5  # seconds that a thread gets to end
# States in which the server has to send something.
_SERVER = ("asking", "fetching")


@dataclass(frozen=True, slots=True)
class FileProgress:
    """The progress of one file.

    file: its path in the repository. repository: with the quantisation, as a user names it.
    done: bytes on disk, of total. reason: why it waits.
    """

    file: str
    repository: str
    done: int
    total: int
    state: TransferState
    reason: str = ""


def bytes_on_disk(model: RemoteModel) -> int:
    """Return the bytes of a model that need not be downloaded any more."""
    return sum(file.bytes_on_disk for file in cached_files(model))


def require_space(models: Sequence[RemoteModel]) -> None:
    """Raise LocalspecError where the disk of the cache has no room for the missing bytes."""
    missing, free = sum(model.size - bytes_on_disk(model) for model in models), free_space()
    if missing > free:
        names = " and ".join(dict.fromkeys(str(model.repository) for model in models))
        raise LocalspecError(
            f"{names}: {format_bytes(missing)} are to be fetched and "
            f"{format_bytes(free)} are free in {hub_cache()}; "
            "make room, or set HF_HUB_CACHE to a folder elsewhere"
        )


def download(
    models: Sequence[RemoteModel],
    report: Callable[[FileProgress], None],
    cancelled: Callable[[], bool],
) -> list[Path]:
    """Download what is missing of these models, and return the (first) file of each.

    report: called in this thread, several times a second for each file. cancelled: called as often;
    whether to stop. What was downloaded is kept, whatever is raised: KeyboardInterrupt when
    cancelled, HubError, ModelNotFoundError, or LocalspecError for a disk that is full or read-only.
    """
    files = [cached_files(model) for model in models]
    wanted = [each for of_model in files for each in of_model]
    with disk_errors_explained(wanted):
        for first, *_ in files:
            begin_main(first)
    workers = _Workers(wanted)
    try:
        workers.follow(report, cancelled)
    finally:
        workers.stop()
    with disk_errors_explained(wanted):
        for first, *_ in files:
            set_main(first)
    return [first.path for first, *_ in files]


class _Workers:
    """Threads that download, each of them the next file that no other has taken."""

    def __init__(self, wanted: Sequence[CachedFile]) -> None:
        self._all = wanted
        self._unfinished = len(wanted)
        self._waiting: queue.SimpleQueue[CachedFile] = queue.SimpleQueue()
        self._messages: queue.SimpleQueue[FileProgress | BaseException] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._arrivals = Arrivals()
        # By file: the latest report of its transfer, and when it came.
        self._latest: dict[tuple[str, str], tuple[FileProgress, float]] = {}
        # Files of which it was said that nothing comes.
        self._told_silent: set[tuple[str, str]] = set()
        for file in wanted:
            self._waiting.put(file)
        # Daemons, because a thread that waits for a silent server must not keep the process alive.
        self._threads = [
            threading.Thread(target=self._work, daemon=True)
            for _ in range(min(_CONNECTIONS, self._unfinished))
        ]
        for thread in self._threads:
            thread.start()

    def follow(self, report: Callable[[FileProgress], None], cancelled: Callable[[], bool]) -> None:
        """Report progress until all files are done; raise what a thread raised."""
        while self._unfinished:
            if cancelled():
                raise KeyboardInterrupt
            with suppress(queue.Empty):
                message = self._messages.get(timeout=_REPORT_INTERVAL)
                if isinstance(message, BaseException):
                    raise message
                key = message.repository, message.file
                self._latest[key] = message, monotonic()
                if message.state == "fetching":
                    self._told_silent.discard(key)
                report(message)
                self._unfinished -= message.state == "done"
            for silent in self._silent():
                report(silent)

    def _silent(self) -> Iterator[FileProgress]:
        """Yield the files whose server has just become silent; the first time with a reason."""
        for key, (progress, since) in self._latest.items():
            if progress.state in _SERVER and monotonic() - since >= SILENCE:
                told = key in self._told_silent
                why = "" if told else f"nothing has come from the server for {SILENCE:.0f} s"
                self._told_silent.add(key)
                silent = replace(progress, state="silent", reason=why)
                self._latest[key] = silent, since
                yield silent

    def stop(self) -> None:
        """Tell the threads to end, and wait a moment; one may go on until its server answers."""
        self._stop.set()
        until = monotonic() + _STOP_TIMEOUT
        for thread in self._threads:
            thread.join(max(0.0, until - monotonic()))

    def _work(self) -> None:
        with suppress(queue.Empty, TransferStopped):
            while not self._stop.is_set():
                file = self._waiting.get_nowait()
                try:
                    with disk_errors_explained(self._all):
                        report = self._reporter(file)
                        Transfer(file, report, self._stop, self._arrivals).run()
                except TransferStopped:
                    raise
                except BaseException as error:  # raised again in the thread that follows
                    self._messages.put(error)
                    return

    def _reporter(self, cached: CachedFile) -> ProgressCallback:
        """Return the `report` of a file's transfer, which drops most reports of chunks."""
        file, repository = cached.file, str(cached.model.repository)
        last: tuple[TransferState, float] = ("waiting", 0.0)

        def report(state: TransferState, done: int, reason: str) -> None:
            nonlocal last
            if state == last[0] != "done" and monotonic() - last[1] < _REPORT_INTERVAL:
                return
            last = (state, monotonic())
            self._messages.put(FileProgress(file.path, repository, done, file.size, state, reason))

        return report
