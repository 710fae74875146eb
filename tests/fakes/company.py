"""A context without a model, for the passes of many threads: it keeps account of its decodes."""

import threading
from collections.abc import Callable, Sequence
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any

import numpy as np
from fakes.machine import FakeClock

from localspec.engine.scheduler import ScheduledText, Scheduler
from localspec.errors import LocalspecError
from localspec.speculation.passes import Pass, Scores
from localspec.utils.fair_lock import FairLock

PATIENCE = 30.0
# Tokens that a decode does not survive: the library refuses it, our code fails, Ctrl-C.
POISON: dict[int, BaseException] = {
    -1: LocalspecError("refused"),
    -2: ValueError("a mistake"),
    -3: KeyboardInterrupt(),
}


class FakeSequence:
    """A text; its logits after a token are the token itself."""

    def __init__(self, context: "FakeContext") -> None:
        self.context = context
        self.tokens: list[int] = []


class FakeContext:
    """Computes passes into one buffer, which each decode overwrites, as the library does.

    seconds: of each decode; a clock is set forward by them instead, where there is one. decodes:
    the first tokens and the rows of the passes of each decode.
    """

    def __init__(
        self,
        *,
        size: int = 100,
        most_rows: int = 512,
        splits_unequal: bool = False,
        is_offloaded: bool = False,
        seconds: float = 0.0,
        clock: FakeClock | None = None,
    ) -> None:
        self.model = SimpleNamespace(size=size, is_offloaded=is_offloaded)
        self.splits_unequal = splits_unequal
        self.decodes: list[list[tuple[int, int]]] = []
        self._most_rows = most_rows
        self._seconds, self._clock = seconds, clock
        self._buffer = np.zeros((64, 1), np.float32)

    @property
    def rows(self) -> int:
        """The rows of all decodes so far."""
        return sum(rows for decode in self.decodes for _, rows in decode)

    def rows_of(self, requested: Pass) -> int:
        return len(requested)

    def fits(self, passes: Sequence[Pass]) -> bool:
        return sum(map(len, passes)) <= self._most_rows

    def decode(self, passes: Sequence[Pass]) -> list[Scores]:
        assert self.fits(passes)
        if self._clock:
            self._clock.now += self._seconds
        else:
            sleep(self._seconds)
        for requested in passes:
            if requested.tokens[0] in POISON:
                raise POISON[requested.tokens[0]]
        self.decodes.append([(requested.tokens[0], len(requested)) for requested in passes])
        self._buffer[:] = -9
        for i, requested in enumerate(passes):
            self._buffer[i] = requested.tokens[0]
        return [Scores(self._buffer[i : i + 1]) for i in range(len(passes))]


class Writer:
    """A text of a scheduler, which a thread writes step by step.

    texts: how many shared each of its decodes, as it was told.
    """

    def __init__(self, scheduler: Scheduler, context: FakeContext) -> None:
        self.scheduled: ScheduledText = scheduler.new_text()
        self.context = context
        self.sequence = FakeSequence(context)
        self.steps = 0
        self.texts: list[int] = []

    def compute(self, token: int, rows: int = 1, reading: float = 0.0) -> None:
        """One pass in a step; its scores stay what they are as long as the step uses them."""
        requested = Pass(self.sequence, [token] * rows)  # type: ignore[arg-type]
        scores = self.scheduled.compute(requested)
        self.texts.append(self.scheduled.rows.texts)
        sleep(reading)
        assert scores.logits.tolist() == [[token]]

    def write(self, tokens: Sequence[int], rows: int = 1, reading: float = 0.0) -> None:
        for token in tokens:
            step = self.scheduled.step()
            with step, step:
                self.compute(token, rows, reading)
            self.steps += 1


def hold_until_awaited(lock: FairLock, count: int) -> None:
    """Have the lock held until so many threads wait for it; returns when it is held.

    So texts begin together, however busy the machine is. Where fewer come, the lock is let go, and
    what they raised is told by `Threads.join`.
    """
    held = threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            until = monotonic() + PATIENCE / 2
            while len(lock._waiting) < count and monotonic() < until:
                sleep(0.0001)

    threading.Thread(target=hold, daemon=True).start()
    assert held.wait(PATIENCE)


class Threads:
    """Threads that must end: `join` raises what they raised."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, work: Callable[..., Any], *arguments: Any) -> threading.Thread:
        def run() -> None:
            try:
                work(*arguments)
            except BaseException as error:
                self.errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def join(self) -> None:
        """Wait for all; fail where one does not end."""
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a thread waits for ever"
        if self.errors:
            raise self.errors[0]


def run_together(lock: FairLock, count: int, work: Callable[[int], Any]) -> None:
    """Call `work` with 0, 1, ... in so many threads, which begin together; wait for them.

    lock: what each of them takes first.
    """
    threads = Threads()
    hold_until_awaited(lock, count)
    for number in range(count):
        threads.start(work, number)
    threads.join()
