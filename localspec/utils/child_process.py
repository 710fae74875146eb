"""Child process: run a module of localspec in a process of its own, which may crash or hang.

The child sees the same `sys.path` as its parent. It gets no signals from the keyboard, and it ends
with its parent, whatever ends that.

    with ChildProcess("localspec.doctor.hub_probe") as child:
        ended = child.wait(seconds=60)
"""

import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from localspec.errors import LocalspecError
from localspec.utils import lack_of_memory
from localspec.utils.closing import Closing
from localspec.utils.format import printable, without_folder
from localspec.utils.native_fault import end_at_fault
from localspec.utils.progress import report_progress

# Seconds between two reports of progress; a watcher ends the waiting by what it raises then.
_POLL_SECONDS = 0.1
# Signals that a process gets for a fault of its own code. (SIGKILL comes from outside, and so does
# SIGBUS: a file that is mapped became shorter.)
FAULT_SIGNALS = {
    int(getattr(signal, name))
    for name in ("SIGABRT", "SIGSEGV", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS")
    if hasattr(signal, name)
}
_LONGEST_LINE = 300
# What a program that tries out a file writes once everything is there but the file: what ends its
# process later is about that.
BEGUN = "begun"


def python_module(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module; with `python_environment`, it is the one seen here."""
    return [sys.executable, "-P", "-m", module, *arguments]


def python_environment() -> dict[str, str]:
    """Return this process' environment, with its `sys.path`; what a child writes is UTF-8."""
    path = os.pathsep.join(sys.path)
    return {**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"}


@dataclass(frozen=True, slots=True)
class ChildExit:
    """How a child process ended.

    exit_code: minus the signal's number where a signal ended it. output, errors: what it wrote to
    standard output and standard error. timed_out: it was killed because its time was over.
    """

    exit_code: int
    output: str
    errors: str
    timed_out: bool = False

    @property
    def lacked_memory(self) -> bool:
        """Whether its last words are of memory that it did not get."""
        return lack_of_memory.is_said_in(self.errors)

    @property
    def crashed(self) -> bool:
        """Whether a fault of its own code ended it, not a signal from outside or lack of memory."""
        # Windows has no signals: 3 is abort(), and exceptions of the system have the highest bit.
        windows_fault = os.name == "nt" and (self.exit_code == 3 or self.exit_code >= 1 << 31)
        fault = -self.exit_code in FAULT_SIGNALS or windows_fault
        return fault and not self.timed_out and not self.lacked_memory

    @property
    def last_error(self) -> str:
        """The last line of `errors`, printable and cut; empty if there is none.

        The folder in front of a failed C++ assertion is left out.
        """
        lines = [line.strip() for line in self.errors.splitlines() if line.strip()]
        return printable(without_folder((lines or [""])[-1])[:_LONGEST_LINE])

    @property
    def signal_name(self) -> str | None:
        """The signal that ended it, such as "SIGSEGV"; None if none did."""
        if self.exit_code >= 0:  # on Windows, 0 is a signal too
            return None
        try:
            return signal.Signals(-self.exit_code).name
        except ValueError:
            return None

    @property
    def reason(self) -> str:
        """The last error, else the signal, else the exit code."""
        return self.last_error or self.signal_name or f"exit code {self.exit_code}"


class ChildProcess(Closing):
    """A module that runs as `python -m module arguments...`; use it in a `with`, which kills it.

    Raises OSError where no process can be started.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        # The parent holds the other end of the child's standard input for as long as it lives.
        self._lifeline: tuple[int, ...] = os.pipe()
        try:
            self._process = subprocess.Popen(
                python_module(__name__, module, *arguments),
                env={
                    **python_environment(),
                    # Else the library's log would hide the child's last words.
                    "LOCALSPEC_DEBUG": "0",
                },
                stdin=self._lifeline[0],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                encoding="utf-8",
                errors="replace",
            )
        except BaseException:
            self._close_lifeline()
            raise

    def wait(self, *, seconds: float, action: str | None = None) -> ChildExit:
        """Wait for the end of the child; kill it when the time is over.

        action: reported as progress meanwhile, such as "trying out big.gguf". Raises what the
        watcher of the progress raises.
        """
        end = monotonic() + seconds
        while True:
            if action:
                report_progress(action)
            left = end - monotonic()
            if ended := self.ended(min(_POLL_SECONDS, left)):
                return ended
            if left <= _POLL_SECONDS:
                break
        self._process.kill()
        output, errors = self._process.communicate()
        return ChildExit(self._process.returncode, output, errors, timed_out=True)

    def ended(self, seconds: float = 0) -> ChildExit | None:
        """Wait for so long for the end of the child; None if it still runs then."""
        try:
            output, errors = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        return ChildExit(self._process.returncode, output, errors)

    def close(self) -> None:
        """Kill the child if it still runs, and free its pipes."""
        self._process.kill()
        with self._process:  # waits for its end
            self._close_lifeline()

    def _close_lifeline(self) -> None:
        ends, self._lifeline = self._lifeline, ()
        for end in ends:
            os.close(end)


def exit_code_of(work: Callable[[], object]) -> int:
    """In the child: do the work; return its exit code. An error goes to standard error."""
    try:
        work()
    except LocalspecError as error:
        os.write(2, str(error).encode("utf-8", "replace"))
        return error.exit_code
    return 0


def end_with_parent() -> None:
    """Let this process end when its standard input ends, which its parent holds open.

    A thread waits for that, and standard input is empty from now on: on Windows, libraries that
    look at it while they are loaded, as numpy's do, would wait for the thread.
    """
    lifeline = os.dup(0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)

    def wait() -> None:
        os.read(lifeline, 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    """In the child: run the module that is named first, with the arguments that follow."""
    end_with_parent()
    del sys.argv[0]
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except OSError as error:
        end_at_fault(error)
        raise


if __name__ == "__main__":
    main()
