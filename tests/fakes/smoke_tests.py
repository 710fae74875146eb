"""Smoke tests that start at once: each is a fork of one process that has imported everything.

Tests try hundreds of new model files, and starting Python takes longer than all else in that. A
model that ends its process ends a fork, as it ends a child of the real check.
"""

import json
import os
import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path
from threading import Lock
from time import monotonic, sleep

from localspec.llama import smoke_test
from localspec.utils.child_process import ChildExit
from localspec.utils.closing import Closing
from localspec.utils.progress import report_progress


class ForkedSmokeTests(Closing):
    """Runs smoke tests as `run_smoke_test` does. The process that forks starts here."""

    def __init__(self) -> None:
        self._numbers, self._lock = count(), Lock()
        self._server = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "LOCALSPEC_DEBUG": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def run(
        self, path: Path, *, extra_buffers: bool, seconds: float, action: str | None = None
    ) -> ChildExit:
        """As `smoke_test.run_smoke_test`."""
        if action:
            report_progress(action)
        with self._lock:
            number = next(self._numbers)
            asked, answers = self._server.stdin, self._server.stdout
            assert asked and answers
            asked.write(json.dumps([number, str(path), extra_buffers, seconds]) + "\n")
            asked.flush()
            # An interrupt may have left an earlier answer unread.
            for answered, *ended in map(json.loads, answers):
                if answered == number:
                    return ChildExit(*ended)
        raise AssertionError("the process that forks has ended")

    def close(self) -> None:
        """End the process that forks."""
        self._server.communicate()


def _forked(path: str, extra_buffers: bool, seconds: float) -> tuple[int, str, str, bool]:
    """Smoke-test in a fork: its exit code, its standard output and error, and whether it hung."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        child = os.fork()
        if not child:
            os.dup2(output.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            try:
                os._exit(smoke_test.main(path, *["extra-buffers"] * extra_buffers))
            finally:
                os._exit(1)
        ends, hung, ended = monotonic() + seconds, False, (0, 0)
        while not ended[0]:
            sleep(0.002)
            # A child that has ended can be killed as long as nobody has waited for it.
            if not hung and monotonic() > ends:
                hung = True
                os.kill(child, 9)
            ended = os.waitpid(child, os.WNOHANG)
        written = [os.pread(each.fileno(), 1 << 20, 0) for each in (output, errors)]
        said, wrong = (each.decode("utf-8", "replace") for each in written)
        return os.waitstatus_to_exitcode(ended[1]), said, wrong, hung


def main() -> None:
    """Answer each line of standard input: a number, and the arguments of `_forked`."""
    for line in sys.stdin:
        number, *arguments = json.loads(line)
        sys.stdout.write(json.dumps([number, *_forked(*arguments)]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
