"""Past writer: stores texts in a thread of its own, as that may take a while."""

import atexit
from math import inf
from queue import Empty, SimpleQueue
from threading import Event, Thread
from time import monotonic

from localspec.drafters.drawn_from import DrawnText
from localspec.drafters.suffix_store import PastTexts

# The whole file is written each time.
_SECONDS_BETWEEN = 10.0
_DUE = Event()


class PastWriter:
    """Stores texts in the order in which they are put, those of ten seconds at once.

    Its methods may be called anywhere, also by the garbage collector in the middle of anything.
    Only `write` waits. What is put is stored at the end of the interpreter, too.
    """

    def __init__(self, store: PastTexts) -> None:
        self._store = store
        # Texts, and events to be set once all before them is stored; None: the end.
        self._queue = SimpleQueue[DrawnText | Event | None]()
        self._thread = Thread(target=self._run, name="past texts", daemon=True)
        self._thread.start()
        atexit.register(self._finish)

    def put(self, text: DrawnText) -> None:
        """Store a text, within ten seconds."""
        self._queue.put(text)

    def write(self) -> None:
        """Wait until all texts are stored that were put."""
        written = Event()
        self._queue.put(written)
        # In a forked process there is no such thread.
        while not written.wait(1) and self._thread.is_alive():
            pass

    def end(self) -> None:
        """End the thread once all is stored; nothing may be put or waited for any more."""
        self._queue.put(None)

    def _finish(self) -> None:
        self.end()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._store_all()
        finally:
            atexit.unregister(self._finish)

    def _store_all(self) -> None:
        texts, written_at = list[DrawnText](), -inf
        while True:
            due = written_at + _SECONDS_BETWEEN
            try:
                got = self._queue.get(timeout=max(0.0, due - monotonic()) if texts else None)
            except Empty:
                got = _DUE
            if got is not None and not isinstance(got, Event):
                texts.append(got)
                if monotonic() < due:
                    continue
            if texts:
                self._store.add(*texts)
                texts, written_at = [], monotonic()
            if got is None:
                return
            if isinstance(got, Event):
                got.set()
