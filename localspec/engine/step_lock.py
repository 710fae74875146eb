"""Step lock: the lock that each step of a text holds, and who waits for whose steps."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Thread, current_thread
from typing import Any, cast

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
        self.steps: set[object] = set()

    @property
    def in_step(self) -> bool:
        """Whether a step is running."""
        return bool(self.steps)

    @property
    def in_step_elsewhere(self) -> bool:
        """Whether another thread runs a step of this text."""
        return self.in_step and self.thread != current_thread()


class _Held:
    """A `with` block that holds a lock, and begins when `wait` has returned.

    Its end is the lock's own: a Python function could be interrupted before it released anything.
    """

    __slots__ = ("_lock", "_wait")

    def __init__(self, lock: FairLock, wait: Callable[[], object]) -> None:
        self._lock, self._wait = lock, wait

    def __enter__(self) -> None:
        self._lock.__enter__()
        try:
            self._wait()
        except BaseException:
            self._lock.release()
            raise

    @property
    def __exit__(self) -> Callable[..., Any]:
        return self._lock.__exit__


class StepLock:
    """Lets threads run steps of texts, one thread at a time except where they wait.

    lock: held in each step, and by whoever changes the engine's models or caches.

    A signal's handler, such as Ctrl-C's, may raise anywhere in here. So nothing is counted: the
    steps, and who waits for what, are in sets that can be cleared twice, and `exit` clears all.
    """

    def __init__(self) -> None:
        self.lock = FairLock(forked=_FORKED)
        # The steps that each thread is in: those of a drafter's own session are nested.
        self._steps: dict[Thread, set[object]] = {}
        # Threads that wait for the lock to begin a step.
        self.arriving: set[Thread] = set()
        # Threads in a step that wait for something else than a pass.
        self._idle: set[Thread] = set()
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

    def exclusive(self) -> AbstractContextManager[None]:
        """Hold the lock while no text is in a step.

        Who asks in one waits neither for its own nor for those of threads that wait themselves.
        """
        return cast(AbstractContextManager[None], _Held(self.lock, self._wait_until_quiet))

    def between_steps(self, text: TextSteps) -> AbstractContextManager[None]:
        """Hold the lock while a text is in no step of another thread."""
        held = _Held(self.lock, lambda: self.wait_for_step(text))
        return cast(AbstractContextManager[None], held)

    @property
    def _busy(self) -> set[Thread]:
        """Threads in a step that do not wait."""
        return self._steps.keys() - self._idle

    def _wait_until_quiet(self) -> None:
        thread = current_thread()
        try:
            self._wait_for_quiet.add(thread)
            while self._steps.keys() - self._ignored_by(thread):
                self.wait()
        finally:
            self._wait_for_quiet.discard(thread)
            self.lock.notify_all()

    # Called with the lock held.

    def enter(self, text: TextSteps, step: object) -> None:
        """Begin a step, after that of another thread on the same text.

        It waits first for a thread that wants all texts to be between steps.
        """
        thread = current_thread()
        self.wait_for_step(text)
        while self._wait_for_quiet and thread not in self._steps:
            self.wait()
            self.wait_for_step(text)
        self._steps.setdefault(thread, set()).add(step)
        text.steps.add(step)
        text.thread = thread

    def exit(self, text: TextSteps, step: object) -> None:
        """End a step, whatever of it had begun."""
        thread = current_thread()
        self._idle.discard(thread)
        text.steps.discard(step)
        steps = self._steps.get(thread, set())
        steps.discard(step)
        if not steps:
            self._steps.pop(thread, None)
        if not text.in_step:
            self.lock.notify_all()

    def wait_for_step(self, text: TextSteps) -> None:
        """Wait while another thread runs a step of a text.

        Raises LocalspecError where that thread waits, itself or by others, for a step of this one.
        """
        thread = current_thread()
        while text.in_step_elsewhere:
            self._require_no_ring(text)
            try:
                self._awaited[thread] = text
                self.wait()
            finally:
                self._awaited.pop(thread, None)

    def wait(self, seconds: float | None = None) -> None:
        """Wait until something has changed, at most for so many seconds.

        Meanwhile the calling thread keeps nobody waiting.
        """
        thread = current_thread()
        try:
            if thread in self._steps:
                self._idle.add(thread)
                self.lock.notify_all()
            self.lock.wait(seconds)
        finally:
            self._idle.discard(thread)

    def _ignored_by(self, thread: Thread) -> set[Thread]:
        """The threads whose steps `exclusive` does not wait for in this one."""
        in_step = thread in self._steps
        return self._wait_for_quiet | self._awaited.keys() if in_step else set()

    def _require_no_ring(self, text: TextSteps | None) -> None:
        while text and text.in_step_elsewhere and text.thread:
            text = self._awaited.get(text.thread)
        if text and text.in_step:
            raise in_a_step("a text that waits for this one cannot be waited for")
