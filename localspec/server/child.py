"""Server child: the process that serves, as its parent sees it, and what it does itself.

It gets its job on standard input, pickled, which the parent then holds open for as long as it
lives. It says on standard output what it is at, a JSON object per line. What it writes on standard
error its parent writes on.
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
from time import monotonic
from typing import IO, Protocol

from localspec.llama import lack_of_memory
from localspec.utils.child_process import (
    FAULT_SIGNALS,
    ChildExit,
    end_with_parent,
    python_environment,
    python_module,
)
from localspec.utils.closing import Closing
from localspec.utils.format import printable

# Lines that are older at the end are not about it.
_LAST_SECONDS = 10.0
_MOST_LINES, _LONGEST_LINE = 20, 200
# How long to wait for what was written last.
_COPY_SECONDS = 5.0
# Signals that end a child without anybody's wish: faults, a mapped file that became shorter, and
# what systems send where main memory runs out.
_KILLED, _CUT_SHORT = (int(getattr(signal, name, 0)) for name in ("SIGKILL", "SIGBUS"))
_FATAL = {*FAULT_SIGNALS, _KILLED, _CUT_SHORT} - {0}
# Exit codes of Windows: abort(), the first exception of the system, and Ctrl-C.
_ABORTED, _FIRST_EXCEPTION, _CTRL_C = 3, 0xC0000000, 0xC000013A
# What shells add to the number of a signal.
_SIGNALLED_CODE = 128
# The server's own log begins with the time, and other lines of localspec with its name.
_OWN_LINE = re.compile(r'\d{4}-\d\d-\d\d |\{"time"|localspec: ')
# What the child reports besides errors.
_READY, _SIGNALLED = "ready", "signalled"


class Report:
    """In the child: tells the parent what it is at. Any thread may."""

    def __init__(self, channel: IO[str]) -> None:
        self._channel = channel

    def ready(self) -> None:
        """The server answers."""
        self._send({"state": _READY})

    def signalled(self) -> None:
        """It has got a signal."""
        self._send({"state": _SIGNALLED})

    def error(self, line: str) -> None:
        """The library has logged an error, which may be its last word."""
        self._send({"error": line})

    def _send(self, said: dict[str, str]) -> None:
        # A parent that is gone needs no report.
        with suppress(OSError, ValueError):
            self._channel.write(json.dumps(said) + "\n")
            self._channel.flush()


class Job(Protocol):
    """What a child does; it can be pickled."""

    def __call__(self, report: Report, lacks: int) -> int:
        """Serve until the end; return the exit code.

        lacks: how often the processes before it have ended for lack of memory.
        """
        ...


@dataclass(frozen=True, slots=True)
class ServerExit(ChildExit):
    """How a child ended.

    output: the errors that the library has logged at last. errors: what it wrote on standard error
    at last, without the server's own log.
    """

    @property
    def is_fault(self) -> bool:
        """Whether it ended without anybody's wish; then another one may do better."""
        if sys.platform == "win32":
            return self.exit_code == _ABORTED or _FIRST_EXCEPTION <= self.exit_code != _CTRL_C
        return -self.exit_code in _FATAL

    @property
    def lacked_memory(self) -> bool:
        """Whether it ended for lack of memory, as far as can be told."""
        killed = -self.exit_code == _KILLED
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
        return _SIGNALLED_CODE - self.exit_code if self.exit_code < 0 else self.exit_code


class ServerChild(Closing):
    """A running child; use it in a `with`, which kills it.

    ready: whether it has become ready. signals: how many it has got. Raises OSError where no
    process can be started.
    """

    def __init__(self, job: Job, lacks: int) -> None:
        self.ready = False
        self.signals = 0
        self._logged, self._written = _LastLines(), _LastLines()
        with _ignoring_interrupts():  # until it can answer them
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
            pickle.dump((job, lacks), self._process.stdin)
            self._process.stdin.flush()

    def wait(self) -> ServerExit:
        """Wait for its end, noting what it reports."""
        assert self._process.stdout
        for line in self._process.stdout:
            said = json.loads(line)
            self.ready |= said.get("state") == _READY
            self.signals += said.get("state") == _SIGNALLED
            if "error" in said:
                self._logged.add(said["error"])
        code = self._process.wait()
        self._copier.join(_COPY_SECONDS)
        return ServerExit(code, self._logged.text(), self._written.text())

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
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream
            with suppress(OSError):
                stream.close()

    def _copy_errors(self) -> None:
        assert self._process.stderr
        for line in self._process.stderr:
            with suppress(OSError):
                os.write(2, line)
            text = line.decode("utf-8", "replace").rstrip()
            if text and not _OWN_LINE.match(text):
                self._written.add(text)


class _LastLines:
    """Lines, and when they came; only the last ones are kept."""

    def __init__(self) -> None:
        self._lines: deque[tuple[float, str]] = deque(maxlen=_MOST_LINES)

    def add(self, line: str) -> None:
        self._lines.append((monotonic(), line.strip()))

    def text(self) -> str:
        """Those of the last seconds."""
        begin = monotonic() - _LAST_SECONDS
        return "\n".join(line for moment, line in [*self._lines] if moment > begin)


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Let children that are started inside ignore Ctrl-C, until they ask for it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def main() -> None:
    """In the child: do the job."""
    job, lacks = pickle.load(sys.stdin.buffer)
    threading.Thread(target=end_with_parent, daemon=True).start()
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # What anything prints belongs to the log.
    os.dup2(2, 1)
    sys.exit(job(Report(channel), lacks))


if __name__ == "__main__":
    main()
