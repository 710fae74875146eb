"""Supervisor: keeps a server running whose process may be ended by a fault at any time.

Where a GPU is lost, or its memory runs out in the middle of a pass, most backends of llama.cpp end
the process instead of returning an error; a crash of a driver does so too. So the server runs in a
child process, and another one is started where a fault ends that.
"""

import logging
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from types import FrameType

from localspec.server.child import Job, ServerChild, ServerExit
from localspec.utils.closing import Closing
from localspec.utils.exit_codes import INTERRUPTED
from localspec.utils.format import counted

log = logging.getLogger("localspec.server")

# Faults that are older say nothing about the next one.
_RECENT_SECONDS = 600.0
# What took memory then may be gone a day later.
_LACK_SECONDS = 86400.0
# Until the next start behind the only recent fault; twice as long with each further one, but no
# longer than that.
_FIRST_DELAY, _LONGEST_DELAY = 1.0, 30.0
# So many starts in a row that end before the server is ready are the last ones.
_MOST_FAILED_STARTS = 5
# A signal that the child has not got by itself after so long, as it does from a terminal, is sent.
_FORWARD_SECONDS = 0.25
# A signal is answered after so long, at most, where there is no child.
_POLL_SECONDS = 0.1


class Faults:
    """What has ended the processes of a server so far, and what follows from that.

    were_ready: whether any of them had become ready. on_gpus: whether the last one was.
    """

    def __init__(self) -> None:
        self.were_ready = self.on_gpus = False
        self._of_memory: deque[float] = deque()
        self._recent: deque[float] = deque()
        self._failed_starts = 0

    def add(self, now: float, *, ready: bool, lacked_memory: bool) -> None:
        """Note a fault, or a start that failed. now: in seconds. ready: whether it became ready."""
        self._recent.append(now)
        if lacked_memory:
            self._of_memory.append(now)
        for found, seconds in ((self._recent, _RECENT_SECONDS), (self._of_memory, _LACK_SECONDS)):
            while found and found[0] < now - seconds:
                found.popleft()
        self._failed_starts = 0 if ready else self._failed_starts + 1
        self.were_ready |= ready

    @property
    def of_memory(self) -> int:
        """How many ended for lack of memory, of the last day."""
        return len(self._of_memory)

    @property
    def delay(self) -> float:
        """Seconds until the next start."""
        return min(_FIRST_DELAY * 2.0 ** (len(self._recent) - 1), _LONGEST_DELAY)

    @property
    def verdict(self) -> str | None:
        """Why no other process is started, in words; None where one is."""
        if not self.were_ready:
            return "before it was ready"
        if self._failed_starts >= _MOST_FAILED_STARTS:
            return f"and so were {counted(self._failed_starts - 1, 'start')} before"
        return None


def supervise(job: Job) -> int:
    """Do the job in a child process, in another one where a fault ends that; return the exit code.

    A process that ends as it was asked to is the last one, and so is the first one if it never
    becomes ready. Later, a start that fails is tried again, a few times: what it lacks may come
    back. Signals are the child's; until it is ready, one ends it at once. Only the main thread may
    call it. Raises OSError where not even the first process can be started.
    """
    faults = Faults()
    with _Signals() as signals:
        while True:
            ended = _done(job, faults, signals)
            faults.on_gpus = ended.on_gpus
            if signals.received:
                return ended.code if ended.ready else signals.code
            has_failed = faults.were_ready and not ended.ready and ended.code != 0
            if not ended.is_fault and not has_failed:
                return ended.code
            faults.add(monotonic(), ready=ended.ready, lacked_memory=ended.lacked_memory)
            what = f"the process that serves was ended by {ended.cause}"
            if faults.verdict:
                log.error("%s, %s", what, faults.verdict)
                return ended.code
            log.error(
                "%s; %sanother one starts in %.0f s%s",
                what,
                "what it wrote is lost, and " if ended.ready else "",
                faults.delay,
                ", to leave more memory free" if ended.lacked_memory else "",
            )
            if signals.came_within(faults.delay):
                return signals.code


def _done(job: Job, faults: Faults, signals: "_Signals") -> ServerExit:
    """Do the job in a child; return how that ended."""
    try:
        with (
            ServerChild(job, faults.of_memory, on_gpus=faults.on_gpus) as child,
            signals.sent_on_to(child),
        ):
            return child.wait()
    except OSError as error:
        if not faults.were_ready:
            raise
        what = f"no process can be started: {error.strerror or error}"
        return ServerExit(1, "", what, on_gpus=faults.on_gpus)


class _Signals(Closing):
    """The signals that ask this process to end; use it in a `with`.

    received: which have come, in their order.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self._child: ServerChild | None = None
        names = ("SIGINT", "SIGTERM", "SIGBREAK")
        ending = [getattr(signal, name) for name in names if hasattr(signal, name)]
        self._before = {each: signal.signal(each, self._handle) for each in ending}

    @property
    def code(self) -> int:
        """The exit code of a server that had nothing to end."""
        return INTERRUPTED if signal.SIGINT in self.received else 0

    @contextmanager
    def sent_on_to(self, child: ServerChild) -> Iterator[None]:
        """Send the child the signals that come inside, unless it gets them by itself."""
        self._child = child
        try:
            if self.received:  # while it was started
                child.kill()
            yield
        finally:
            self._child = None

    def came_within(self, seconds: float) -> bool:
        """Wait until a signal has come, but only for so long; return whether one has."""
        end = monotonic() + seconds
        # A handler must not set what its own thread waits for.
        while not self.received and (left := end - monotonic()) > 0:
            sleep(min(left, _POLL_SECONDS))
        return bool(self.received)

    def close(self) -> None:
        """Put back what was asked for before."""
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def _handle(self, sent: int, _frame: FrameType | None) -> None:
        self.received.append(sent)
        child, count = self._child, len(self.received)
        if child is None:
            return
        if not child.ready:
            child.kill()
        elif sys.platform != "win32":  # there it would be no signal, but the end
            threading.Timer(_FORWARD_SECONDS, lambda: _send_once(child, sent, count)).start()


def _send_once(child: ServerChild, sent: int, count: int) -> None:
    """Send the child a signal, if it has got fewer than `count` so far."""
    if child.signals < count:
        child.send(sent)
