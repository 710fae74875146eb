"""Jobs for the supervisor of a server, done in its child processes."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from localspec.server.child import StatusReporter


def do(request: "Faulty | Patient", reporter: StatusReporter, memory_faults: int) -> int:
    """The function of these jobs."""
    return request(reporter, memory_faults)


@dataclass(frozen=True)
class Faulty:
    """Ends by a signal so many times (0: by an exit in C), then with a code.

    runs: a file that gets a line per run: what it was told. ready: how many runs become ready.
    written, logged: said before the end, on standard error and as the library's error. failed: the
    runs that end with an error, and code 5. on_gpus: as in StatusReporter.
    """

    runs: Path
    faults: int = 1
    sent: int = signal.SIGABRT
    ready: int = 1
    written: str = ""
    logged: str = ""
    code: int = 7
    failed: tuple[int, ...] = ()
    on_gpus: bool = False

    def __call__(self, reporter: StatusReporter, memory_faults: int) -> int:
        with self.runs.open("a") as file:
            file.write(f"{memory_faults}\n")
        number = len(self.runs.read_text().splitlines())
        if number in self.failed:
            return 5
        if number <= self.ready:
            reporter.placed(on_gpus=self.on_gpus)
            reporter.ready()
        if number > self.faults:
            return self.code
        if self.logged:
            reporter.error(self.logged)
        # As a driver may print it.
        os.write(1, b"printed by a driver\n")
        os.write(2, self.written.encode())
        if not self.sent:
            os._exit(1)
        os.kill(os.getpid(), self.sent)
        time.sleep(60)
        return 1


@dataclass(frozen=True)
class Patient:
    """Waits for signals, counts them, and ends a second after the first.

    found: a file that gets its process id, and then how many signals came.
    """

    found: Path
    ready: bool = True

    def __call__(self, reporter: StatusReporter, _memory_faults: int) -> int:
        counted: list[int] = []

        def handle(sent: int, _frame: object) -> None:
            counted.append(sent)
            reporter.signalled()

        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, handle)
        if self.ready:
            reporter.ready()
        self.found.write_text(f"{os.getpid()}\n")
        while not counted:
            time.sleep(0.05)
        time.sleep(1)
        self.found.write_text(f"{len(counted)}\n")
        return 3
