"""Download: models from the Hub into its cache on this disk, all their files at once."""

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from localspec.errors import LocalspecError
from localspec.hub.cache_layout import Place, free_space, places, set_main, writing
from localspec.hub.listing import RemoteModel
from localspec.hub.store import hub_cache
from localspec.hub.transfer import State, Stopped, Transfer
from localspec.utils.format import format_bytes

_AT_ONCE = 4
_TELL_EVERY = 0.1  # seconds, per file
_LINGER = 0.5  # seconds that a transfer gets to end when it is told to


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a file is.

    file: its path in the repository. done: bytes on disk, of total. state: waiting is for another
    process, or for a server that is to be asked again.
    """

    file: str
    repository: str
    done: int
    total: int
    state: State


def present(model: RemoteModel) -> int:
    """Bytes of it that are on disk, in whole files and in parts."""
    return sum(place.fetched for place in places(model))


def require_space(models: Sequence[RemoteModel]) -> None:
    """Raises LocalspecError where the cache's disk has no room for what is missing."""
    missing, free = sum(model.size - present(model) for model in models), free_space()
    if missing > free:
        names = " and ".join(str(model.repository) for model in models)
        raise LocalspecError(
            f"{names}: {format_bytes(missing)} are to be fetched and "
            f"{format_bytes(free)} are free in {hub_cache()}; "
            "make room, or set HF_HUB_CACHE to a folder elsewhere"
        )


def download(
    models: Sequence[RemoteModel],
    tell: Callable[[Progress], None],
    cancelled: Callable[[], bool],
) -> list[Path]:
    """See that models are on disk, fetching what is missing; the (first) file of each.

    tell: called in this thread, several times a second for each file. cancelled: asked as often.
    What was fetched stays when anything is raised: KeyboardInterrupt if cancelled, HubError,
    ModelNotFoundError, and LocalspecError where the disk will not.
    """
    wanted = [place for model in models for place in places(model)]
    crew = _Crew(wanted)
    try:
        crew.follow(tell, cancelled)
    finally:
        crew.stop()
    with writing(wanted):
        for model in models:
            set_main(model)
    return [places(model)[0].path for model in models]


class _Crew:
    """The threads that fetch, each the next file that nobody has begun."""

    def __init__(self, wanted: Sequence[Place]) -> None:
        self._all = wanted
        self._left = len(wanted)
        self._next: queue.SimpleQueue[Place] = queue.SimpleQueue()
        self._news: queue.SimpleQueue[Progress | BaseException] = queue.SimpleQueue()
        self._stop = threading.Event()
        for place in wanted:
            self._next.put(place)
        # Daemons, because one that waits for a silent server must not hold up the end.
        self._threads = [
            threading.Thread(target=self._work, daemon=True)
            for _ in range(min(_AT_ONCE, self._left))
        ]
        for thread in self._threads:
            thread.start()

    def follow(self, tell: Callable[[Progress], None], cancelled: Callable[[], bool]) -> None:
        """Pass on what they say until all is done; raises what one of them raised."""
        while self._left:
            if cancelled():
                raise KeyboardInterrupt
            with suppress(queue.Empty):
                news = self._news.get(timeout=_TELL_EVERY)
                if isinstance(news, BaseException):
                    raise news
                tell(news)
                self._left -= news.state == "done"

    def stop(self) -> None:
        """End them; they may take until their servers say something."""
        self._stop.set()
        until = monotonic() + _LINGER
        for thread in self._threads:
            thread.join(max(0.0, until - monotonic()))

    def _work(self) -> None:
        with suppress(queue.Empty, Stopped):
            while not self._stop.is_set():
                place = self._next.get_nowait()
                try:
                    with writing(self._all):
                        Transfer(place, self._teller(place), self._stop).run()
                except Stopped:
                    raise
                except BaseException as error:  # raised again in the thread that follows
                    self._news.put(error)
                    return

    def _teller(self, place: Place) -> Callable[[State, int], None]:
        """Tells of a file, but not of every chunk."""
        file, repository = place.file, str(place.model.repository)
        last: tuple[State, float] = ("waiting", 0.0)

        def tell(state: State, done: int) -> None:
            nonlocal last
            if state == last[0] != "done" and monotonic() - last[1] < _TELL_EVERY:
                return
            last = (state, monotonic())
            self._news.put(Progress(file.path, repository, done, file.size, state))

        return tell
