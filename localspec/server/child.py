"""Server child: the process that serves, as its parent sees it, and what it does itself.

It gets its job on standard input, pickled, which the parent then holds open for as long as it
lives. It says on standard output what it is at, a JSON object per line. The parent copies its
standard error.
"""

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from time import monotonic
from typing import IO

from localspec.utils import lack_of_memory
from localspec.utils.child_process import (
    ChildExit,
    end_with_parent,
    python_environment,
    python_module,
)
from localspec.utils.closing import Closing
from localspec.utils.exit_codes import INTERRUPTED, SIGNALLED
from localspec.utils.format import printable

# The last words of a child: lines of its last seconds, or of those before its last line.
_LAST_SECONDS = 10.0
# So long an end may take; lines that are older are not about it.
_LONGEST_END = 300.0
_MOST_LINES, _LONGEST_LINE = 20, 200
# How long to wait for what was written last.
_COPY_SECONDS = 5.0
_SIGINT = int(signal.SIGINT)
# Signals that ask for the end, and the exit code of a Ctrl-C on Windows.
_WISHES = {
    -int(getattr(signal, name))
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
    if hasattr(signal, name)
} | {0xC000013A}
# The server's own log begins with the time, and other lines of localspec with its name.
_OWN_LINE = re.compile(r'\d{4}-\d\d-\d\d |\{"time"|localspec: (?!error: )')


class StatusReporter:
    """In the child: tells the parent what it is at. Any thread may."""

    def __init__(self, channel: IO[str]) -> None:
        self._channel = channel

    def begun(self) -> None:
        """A Ctrl-C ends it without a word from now on."""
        self._send({"state": "begun"})

    def placed(self, *, on_gpus: bool) -> None:
        """The model is loaded. on_gpus: whether what has no room there is in main memory."""
        self._send({"state": "placed", "on_gpus": on_gpus})

    def ready(self) -> None:
        """The server answers."""
        self._send({"state": "ready"})

    def signalled(self) -> None:
        """It has got a signal that asks for the end."""
        self._send({"state": "signalled"})

    def ended(self) -> None:
        """The job is done, or has failed with an error that was said."""
        self._send({"state": "ended"})

    def error(self, line: str) -> None:
        """The library has logged an error, which may be its last word."""
        self._send({"error": line})

    def _send(self, said: dict[str, object]) -> None:
        # A parent that is gone needs no report.
        with suppress(OSError, ValueError, RuntimeError):  # the last in a handler of signals
            self._channel.write(json.dumps(said) + "\n")
            self._channel.flush()


@dataclass(frozen=True, slots=True)
class Job:
    """What a child does; it can be pickled.

    function: as "module:name", since the parent, which lives as long, need not import it. It serves
    until the end and returns the exit code, and gets the request, a StatusReporter, and how many
    processes before this one have ended for lack of memory.
    """

    function: str
    request: object

    def do(self, reporter: StatusReporter, memory_faults: int) -> int:
        """Call the function."""
        module, _, name = self.function.partition(":")
        code: int = getattr(import_module(module), name)(self.request, reporter, memory_faults)
        return code


@dataclass(frozen=True, slots=True)
class ServerExit(ChildExit):
    """How a child ended.

    output: the errors that the library has logged at last. errors: what it wrote on standard error
    at last, without the server's own log. ready: whether it had become ready. is_wanted: whether it
    has said that it ends, or got a signal that asks for it. on_gpus: as in StatusReporter.
    """

    ready: bool = False
    is_wanted: bool = False
    on_gpus: bool = False

    @property
    def is_fault(self) -> bool:
        """Whether it ended without anybody's wish: by a signal of the system, or an exit in C."""
        return not self.is_wanted and self.exit_code not in _WISHES

    @property
    def lacked_memory(self) -> bool:
        """Whether a smaller plan may help: memory ran out, as far as can be told.

        A system that ends programs needs main memory, to which a smaller plan of GPUs would add.
        """
        killed = self.signal_name == "SIGKILL" and not self.on_gpus
        return killed or lack_of_memory.is_said_in(self.output + self.errors)

    @property
    def cause(self) -> str:
        """The signal that ended it, or the exit code, and the line that says most about it."""
        logged = self.output.splitlines()
        lines = [*logged, *self.errors.splitlines()]
        about_memory = next((each for each in lines if lack_of_memory.is_said_in(each)), "")
        what = printable(about_memory or (logged or [""])[0])[:_LONGEST_LINE] or self.last_error
        name = self.signal_name or f"exit code {self.exit_code}"
        return f"{name} ({what})" if what else name

    @property
    def code(self) -> int:
        """The exit code as shells give it, also for a signal."""
        return SIGNALLED - self.exit_code if self.exit_code < 0 else self.exit_code


class ServerChild(Closing):
    """A running child; use it in a `with`, which kills it.

    on_gpus: as of the one before, until it says so itself. ready: whether it has become ready.
    signals: how many it has got. Raises OSError where no process can be started.
    """

    def __init__(self, job: Job, memory_faults: int, *, on_gpus: bool) -> None:
        self.ready = False
        self.signals = 0
        self._on_gpus, self._has_begun, self._has_ended = on_gpus, False, False
        self._logged, self._written = _LastLines(), _LastLines()
        with _holding_interrupts():  # until it can answer them
            self._process = subprocess.Popen(
                python_module(__name__),
                env=python_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        self._copier = threading.Thread(target=self._copy_errors, daemon=True)
        self._copier.start()
        assert self._process.stdin
        with suppress(OSError):  # it has ended already
            pickle.dump((job, memory_faults), self._process.stdin)
            self._process.stdin.flush()

    def wait(self) -> ServerExit:
        """Wait for its end, noting what it reports."""
        assert self._process.stdout
        for line in self._process.stdout:
            self._note(line)
        code = self._process.wait()
        self._copier.join(_COPY_SECONDS)
        return ServerExit(
            code,
            self._logged.text(),
            self._written.text(),
            ready=self.ready,
            is_wanted=self._has_ended or self.signals > 0,
            on_gpus=self._on_gpus,
        )

    def send(self, sent: int) -> None:
        """Send a signal, if it still runs."""
        self._process.send_signal(sent)

    def kill(self) -> None:
        """End it at once, if it still runs."""
        self._process.kill()

    def close(self) -> None:
        """Kill it if it still runs, and free its pipes."""
        self.kill()
        self._process.wait()
        self._copier.join(_COPY_SECONDS)
        # Something that a driver has started may hold its standard error, which is read for ever.
        errors = None if self._copier.is_alive() else self._process.stderr
        for stream in (self._process.stdin, self._process.stdout, errors):
            with suppress(OSError):
                if stream:
                    stream.close()

    def _note(self, line: bytes) -> None:
        try:
            said = json.loads(line)
            state, error = said.get("state"), said.get("error")
        except (ValueError, AttributeError):  # what was printed before it could prevent that
            _copy(line)
            return
        match state:
            case "begun":
                self._has_begun = True
            case "placed":
                self._on_gpus = said["on_gpus"]
            case "ready":
                self.ready = True
            case "signalled":
                self.signals += 1
            case "ended":
                self._has_ended = True
            case _:
                self._logged.add(str(error))

    def _copy_errors(self) -> None:
        assert self._process.stderr
        held: list[bytes] = []
        for line in self._process.stderr:
            held.append(line)
            if self._has_begun:
                self._copy_lines(held)
        # Windows does not hold a Ctrl-C back until the child can answer it; Python's traceback of
        # that says nothing.
        if not held or held[-1].strip() != b"KeyboardInterrupt":
            self._copy_lines(held)

    def _copy_lines(self, lines: list[bytes]) -> None:
        """Copy the lines, noting them, and forget them."""
        for line in lines:
            _copy(line)
            text = line.decode("utf-8", "replace").rstrip()
            if text and not _OWN_LINE.match(text):
                self._written.add(text)
        lines.clear()


def _copy(line: bytes) -> None:
    """Write a line of the child on standard error, if there is one."""
    with suppress(OSError, ValueError, AttributeError):
        # Windows adds a CR to each LF, and so would this process, once more.
        sys.stderr.write(line.decode("utf-8", "replace").replace("\r\n", "\n"))
        sys.stderr.flush()


class _LastLines:
    """Lines, and when they came; only the last ones are kept."""

    def __init__(self) -> None:
        self._lines: deque[tuple[float, str]] = deque(maxlen=_MOST_LINES)

    def add(self, line: str) -> None:
        self._lines.append((monotonic(), line.strip()))

    def text(self) -> str:
        """Those of the last seconds. The process itself may end long after, with a core dump."""
        lines = [*self._lines]
        begin = max(lines[-1][0] - _LAST_SECONDS, monotonic() - _LONGEST_END) if lines else 0.0
        return "\n".join(line for moment, line in lines if moment > begin)


@contextmanager
def _holding_interrupts() -> Iterator[None]:
    """Hold Ctrl-C back, in children that are started inside until they take it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [_SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _take_interrupts() -> None:
    """Let Ctrl-C end this process at once, also one that came before."""
    signal.signal(_SIGINT, lambda *_: os._exit(INTERRUPTED))
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [_SIGINT])


def main() -> None:
    """In the child: do the job."""
    reporter = StatusReporter(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    # What anything prints belongs to the log.
    os.dup2(2, 1)
    _take_interrupts()
    reporter.begun()
    job, memory_faults = pickle.load(sys.stdin.buffer)
    end_with_parent()
    try:
        sys.exit(job.do(reporter, memory_faults))
    finally:
        reporter.ended()


if __name__ == "__main__":
    main()
