"""Worker process: a module that answers requests in a process of its own, each within limits.

Requests and answers are JSON values, a line each, on the worker's standard input and output. The
worker gets no signals from the keyboard, and it ends with its parent.

    worker = WorkerProcess("localspec.llama.template_renderer", seconds=5, memory=1 << 30)
    answer = worker.ask({"text": "hello"})
"""

import atexit
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from localspec.utils.child_process import python_environment, python_module
from localspec.utils.closed_pipe import closed_pipe_ignored
from localspec.utils.format import format_bytes

# Seconds between two looks at what a worker uses.
_POLL_SECONDS = 0.02


class WorkerLimitError(Exception):
    """A request took more than the worker may use; the message says of what."""


class WorkerProcess:
    """A module that runs as `python -m module seconds memory` and calls `serve`.

    It is started by `start` or the first request, and again where it has ended meanwhile.

    seconds: of processor time, for one request. memory: of the whole process, in bytes.
    """

    def __init__(self, module: str, *, seconds: float, memory: int) -> None:
        self._module = module
        self._seconds, self._memory = seconds, memory
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: _Watch | None = None
        self._started_by, self._is_ready = 0, False

    def start(self) -> None:
        """Start the worker before it is asked, and do not wait until it is ready."""
        with self._lock:
            try:
                self._started()
            except (OSError, RuntimeError):  # no process or thread can be started
                self._close()  # the first request says so

    def ask(self, request: Any) -> Any:
        """Send a request and return the answer.

        Raises WorkerLimitError where the request needs more than the limits, or ends the worker;
        OSError where no process can be started; TypeError or ValueError for what is no JSON value.
        """
        line = json.dumps(request).encode() + b"\n"
        with self._lock:
            try:
                process, watch = self._started()
                if not self._is_ready:
                    # What it imports before it is ready is no part of a request.
                    assert process.stdout
                    process.stdout.readline()
                    self._is_ready = True
                with watch.request():
                    answer = _exchange(process, line)
            except BaseException:
                self._close()
                raise
            if answer:
                return json.loads(answer)
            self._close()
            raise WorkerLimitError(watch.exceeded or "more than a process can give")

    def close(self) -> None:
        """End the worker, if it runs; the next request starts another."""
        with self._lock:
            self._close()

    def _started(self) -> tuple[subprocess.Popen[bytes], "_Watch"]:
        process, watch, own = self._process, self._watch, os.getpid()
        # After a fork the worker is that of the parent process, and answers only there.
        if process and watch and self._started_by == own and process.poll() is None:
            return process, watch
        self._close()
        process = self._process = subprocess.Popen(
            python_module(self._module, str(self._seconds), str(self._memory)),
            env=python_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._started_by, self._is_ready = own, False
        atexit.register(self.close)
        watch = self._watch = _Watch(process, self._seconds, self._memory)
        watch.start()
        return process, watch

    def _close(self) -> None:
        atexit.unregister(self.close)
        process, watch, self._process, self._watch = self._process, self._watch, None, None
        if process is None or watch is None or self._started_by != os.getpid():
            return
        watch.requests.put(None)
        process.kill()
        with closed_pipe_ignored(), process:  # waits for its end
            pass


class _Watch(threading.Thread):
    """Kills a worker as soon as a request uses too much.

    It is one thread for all requests, which do not wait for it. exceeded: what a request used too
    much of, None if it did not.
    """

    def __init__(self, process: subprocess.Popen[bytes], seconds: float, memory: int) -> None:
        super().__init__(daemon=True)
        self.exceeded: str | None = None
        # An event per request, set once it is answered; None at the end.
        self.requests = queue.SimpleQueue[threading.Event | None]()
        self._process = process
        self._seconds, self._memory = seconds, memory
        self._deciding = threading.Lock()

    @contextmanager
    def request(self) -> Iterator[None]:
        """Watch a request until it is answered, or the worker is dead; nothing is killed after."""
        answered = threading.Event()
        self.requests.put(answered)
        try:
            yield
        finally:
            with self._deciding:
                answered.set()

    def run(self) -> None:
        """Watch one request after the other."""
        while answered := self.requests.get():
            if not answered.wait(_POLL_SECONDS):
                self._watch(answered)

    def _watch(self, answered: threading.Event) -> None:
        # A usual request takes less time than this import.
        import psutil

        with suppress(psutil.Error):
            watched = psutil.Process(self._process.pid)
            begun = _seconds_used(watched)
            while not answered.wait(_POLL_SECONDS):
                if _seconds_used(watched) - begun > self._seconds:
                    self.exceeded = f"more than {self._seconds:g} s"
                elif watched.memory_info().rss > self._memory:
                    self.exceeded = f"more than {format_bytes(self._memory)} of memory"
                if self.exceeded:
                    with self._deciding:
                        if not answered.is_set():
                            self._process.kill()
                    return


def _exchange(process: subprocess.Popen[bytes], line: bytes) -> bytes:
    """Return the line that answers a line; an empty one if the process ended instead."""
    assert process.stdin
    assert process.stdout
    with closed_pipe_ignored():
        process.stdin.write(line)
        process.stdin.flush()
    answer = process.stdout.readline()
    return answer if answer.endswith(b"\n") else b""


def _seconds_used(process: Any) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def serve(answer: Callable[[Any], Any]) -> None:
    """In the worker: answer all requests; end with the parent. A MemoryError is for `answer`.

    An empty line says that the worker is ready.
    """
    seconds, memory = float(sys.argv[1]), int(sys.argv[2])
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    _limit_memory(memory)
    answers.write(b"\n")
    answers.flush()
    for line in requests:
        _limit_time(2 * seconds)
        answers.write(json.dumps(answer(json.loads(line))).encode() + b"\n")
        answers.flush()


def _limit_memory(memory: int) -> None:
    """Let no single step exceed the memory before the parent looks; not every system can."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _limit_time(seconds: float) -> None:
    """End this process by itself if it computes on after its parent has died."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        end = int(used.ru_utime + used.ru_stime + seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (end, resource.getrlimit(resource.RLIMIT_CPU)[1]))
