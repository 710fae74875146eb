"""Step lock: the lock that each step of a text holds, and who waits for whose steps."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread, current_thread

from localspec.engine.interruption import in_a_step
from localspec.utils.fair_lock import FairLock

_FORKED = (
    "this engine was loaded in the process before the fork, and its threads are not in this one; "
    "load another here, or start processes with the method spawn"
)


class TextSteps:
    """The steps of one text. thread: the one that generates it."""

    def __init__(self) -> None:
        # No number: the system gives that of a thread that has ended to another one.
        self.thread: Thread | None = None
        self._steps = 0

    @property
    def in_step(self) -> bool:
        """Whether a step is running."""
        return self._steps > 0

    @property
    def in_step_elsewhere(self) -> bool:
        """Whether another thread runs a step of this text."""
        return self.in_step and self.thread != current_thread()

    def begin_step(self) -> None:
        """Count a step of this thread."""
        self._steps += 1
        self.thread = current_thread()

    def end_step(self) -> None:
        """Count the end of a step."""
        self._steps -= 1


class StepLock:
    """Lets threads run steps of texts, one thread at a time except where they wait.

    lock: held in each step, and by whoever changes the engine's models or caches.
    """

    def __init__(self) -> None:
        self.lock = FairLock(forked=_FORKED)
        # The number of steps that each thread is in: those of a drafter's own session are nested.
        self._steps: dict[Thread, int] = {}
        # Threads that wait for the lock to begin a step.
        self._arriving: set[Thread] = set()
        # Threads in a step that do not wait.
        self._busy = 0
        # Threads that wait until no text is in a step.
        self._wait_for_quiet: set[Thread] = set()
        # The texts whose steps threads wait for.
        self._awaited: dict[Thread, TextSteps] = {}

    def require_no_step(self, what: str) -> None:
        """Raise LocalspecError if the calling thread is in a step of a text.

        what: what cannot be done then.
        """
        if current_thread() in self._steps:
            raise in_a_step(what)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock while no text is in a step.

        Who asks in one waits neither for its own nor for those of threads that wait themselves.
        """
        with self.lock:
            thread = current_thread()
            self._wait_for_quiet.add(thread)
            try:
                while self._steps.keys() - self._ignored_by(thread):
                    self.wait()
            finally:
                self._wait_for_quiet.discard(thread)
                self.lock.notify_all()
            yield

    def arrive(self) -> None:
        """Take the lock; the next decode waits for a thread that waits here."""
        thread = current_thread()
        self._arriving.add(thread)
        try:
            self.lock.__enter__()
        finally:
            self._arriving.discard(thread)

    # Called with the lock held.

    def enter(self, text: TextSteps) -> None:
        """Begin a step, after that of another thread on the same text.

        It waits first for a thread that wants all texts to be between steps.
        """
        thread = current_thread()
        self.wait_for_step(text)
        while self._wait_for_quiet and thread not in self._steps:
            self.wait()
            self.wait_for_step(text)
        self._busy += thread not in self._steps
        self._steps[thread] = self._steps.get(thread, 0) + 1
        text.begin_step()

    def exit(self, text: TextSteps) -> None:
        """End a step."""
        text.end_step()
        thread = current_thread()
        self._steps[thread] -= 1
        if not self._steps[thread]:
            del self._steps[thread]
            self._busy -= 1
        if not text.in_step:
            self.lock.notify_all()

    def wait_for_step(self, text: TextSteps) -> None:
        """Wait while another thread runs a step of a text.

        Raises LocalspecError where that thread waits, itself or by others, for a step of this one.
        """
        thread = current_thread()
        while text.in_step_elsewhere:
            self._require_no_ring(text)
            self._awaited[thread] = text
            try:
                self.wait()
            finally:
                del self._awaited[thread]

    def wait(self, seconds: float | None = None) -> None:
        """Wait until something has changed, at most for so many seconds.

        Meanwhile the calling thread keeps nobody waiting.
        """
        in_step = current_thread() in self._steps
        if in_step:
            self._busy -= 1
            self.lock.notify_all()
        try:
            self.lock.wait(seconds)
        finally:
            self._busy += in_step

    def _ignored_by(self, thread: Thread) -> set[Thread]:
        """The threads whose steps `exclusive` does not wait for in this one."""
        in_step = thread in self._steps
        return self._wait_for_quiet | self._awaited.keys() if in_step else set()

    def _require_no_ring(self, text: TextSteps | None) -> None:
        while text and text.in_step_elsewhere and text.thread:
            text = self._awaited.get(text.thread)
        if text and text.in_step:
            raise in_a_step("a text that waits for this one cannot be waited for")
