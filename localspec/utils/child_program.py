"""Child program: any program, such as a server, that ends when this process does.

    with ChildProgram(["llama-server", "--port", "8090"], log=file) as program:
        ...

Another Python process starts the program and waits for it. It ends the program as soon as this
process closes the pipe between them, which the system does too, however this process ends.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO

import psutil

from localspec.utils.child_process import python_module
from localspec.utils.closing import Closing

# Seconds that a program has to end by itself, and then the process that waits for it.
_GRACE_SECONDS = 5.0
_LAST_SECONDS = 10.0


class ChildProgram(Closing):
    """A running program; use it in a `with`, which ends it.

    command: the program and its arguments. log: gets what it writes. environment: its variables;
    None: those of this process. The program gets no input and no signals from the keyboard. Raises
    OSError where no process can be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: IO[bytes],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        given = os.environ if environment is None else environment
        self._process = subprocess.Popen(
            python_module(__name__, *command),
            env={**given, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    @property
    def has_ended(self) -> bool:
        """Whether the program has ended."""
        return self.exit_code is not None

    @property
    def exit_code(self) -> int | None:
        """Its exit code, or the number of the signal that ended it; None while it runs."""
        return self._process.poll()

    def has_started(self, process: psutil.Process) -> bool:
        """Whether a process is the program, or was started by it."""
        return any(each.pid == self._process.pid for each in process.parents())

    def close(self) -> None:
        """End the program, and wait until it has ended."""
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(_GRACE_SECONDS + _LAST_SECONDS)
        except subprocess.TimeoutExpired:
            if hasattr(os, "killpg"):  # the program too
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
            self._process.wait()


def main() -> None:
    """In the child: run the program; end it when standard input ends."""
    try:
        program = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    except OSError as error:
        sys.exit(f"{sys.argv[1]}: {error.strerror}")

    def end_with_parent() -> None:
        os.read(0, 1)
        program.terminate()
        try:
            program.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            program.kill()

    threading.Thread(target=end_with_parent, daemon=True).start()
    sys.exit(abs(program.wait()))


if __name__ == "__main__":
    main()
