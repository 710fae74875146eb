"""A server in a process of its own, as a user starts it."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any

import httpx

PATIENCE = 120.0


@dataclass
class Served:
    """A running server. lines: what it has written on standard error so far."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    url: str = ""

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(self.url + path, timeout=PATIENCE, **options)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=PATIENCE, **options)

    @property
    def busy(self) -> int:
        """On how many slots something is written."""
        return sum(slot["is_processing"] for slot in self.get("/slots").json())

    def wait_until_free(self) -> None:
        """Wait until no slot is in use; fail if that does not come."""
        wait_for(lambda: not self.busy)

    def end(self, sent: int = signal.SIGTERM) -> int:
        """Send a signal; the exit code."""
        self.process.send_signal(sent)
        return self.process.wait(PATIENCE)


def wait_for(holds: Any, seconds: float = PATIENCE) -> None:
    """Wait until something holds; fail if it does not in time."""
    ends = monotonic() + seconds
    while not holds():
        assert monotonic() < ends
        sleep(0.02)


@contextmanager
def serving(
    *arguments: str,
    pass_fds: Sequence[int] = (),
    ports: Sequence[int] = (),
    **environment: str,
) -> Iterator[Served]:
    """`localspec serve ARGUMENTS` on a free port. environment: added to that of the tests.

    pass_fds: files that are open there too. ports: that are tried; empty: ones of this process.
    """
    for port in ports or _ports():
        command = [sys.executable, "-m", "localspec", "serve", *arguments, "--port", str(port)]
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=pass_fds,
            text=True,
        )
        served = Served(process)
        reader = threading.Thread(target=_read, args=(served,), daemon=True)
        reader.start()
        try:
            wait_for(lambda: served.url or process.poll() is not None)  # noqa: B023
            if process.poll() is None:
                yield served
                return
            assert any("has it" in line for line in served.lines), served.lines
        finally:
            process.kill()
            process.wait()
            reader.join(PATIENCE)
            assert process.stderr
            process.stderr.close()


def _ports() -> Iterator[int]:
    """Ports to try, other ones in each process of the tests."""
    first = 20000 + os.getpid() * 7 % 20000
    yield from range(first, first + 50)


def _read(served: Served) -> None:
    assert served.process.stderr
    for line in served.process.stderr:
        served.lines.append(line.rstrip("\n"))
        if found := re.search(r"serving at (http://\S+)/v1", line):
            served.url = found[1]


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


@contextmanager
def starting(*command: str) -> Iterator[subprocess.Popen[str]]:
    """`python COMMAND`, until the end of the block."""
    process = subprocess.Popen(
        [sys.executable, *command], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def health(url: str) -> str:
    """The body of /health; empty while nothing listens."""
    try:
        return httpx.get(f"{url}/health").text
    except httpx.TransportError:
        return ""
