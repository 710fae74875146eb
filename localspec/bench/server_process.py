"""Server process: a server that is started on this machine to be measured, and ended after that."""

import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from typing import IO

import psutil

from localspec.bench import load_client
from localspec.bench.load_client import LoadClient, Refused
from localspec.bench.program_log import last_line, variables_of_programs
from localspec.errors import InvalidValueError, LocalspecError
from localspec.utils.child_program import ChildProgram

_HOST = "127.0.0.1"
# Another program may take the port between our choice and the server's start.
_ATTEMPTS = 3


class ServerFailed(LocalspecError):
    """A server did not start, or ended while it was measured."""


@contextmanager
def running_server(
    name: str, command: Callable[[int], Sequence[str]], cancelled: Callable[[], bool]
) -> Iterator[LoadClient]:
    """Start a server, wait until it is ready, and end it with the block.

    name: in errors. command: the program and its arguments for a port of 127.0.0.1. cancelled:
    whether to wait no longer.

    Raises ServerFailed if it does not start, with the last line that it wrote.
    """
    for attempt in range(_ATTEMPTS):
        port = _free_port()
        with tempfile.TemporaryFile() as log:
            with _started(name, command(port), log) as program:
                client = LoadClient(f"{_HOST}:{port}")
                if _is_ready(client, program, cancelled):
                    try:
                        yield client
                    except (Refused, OSError, HTTPException, ValueError) as error:
                        raise ServerFailed(f"{name} failed: {last_line(log) or error}") from error
                    return
                ended = program.has_ended
            if _is_taken(port) and attempt + 1 < _ATTEMPTS:
                continue
            line = last_line(log) or "it wrote no reason"
        if ended:
            raise ServerFailed(f"{name} did not start: {line}")
        raise ServerFailed(f"{name} was not ready after {load_client.LOAD_SECONDS:.0f} s: {line}")


def _started(name: str, command: Sequence[str], log: IO[bytes]) -> ChildProgram:
    try:
        return ChildProgram(command, log=log, environment=variables_of_programs())
    except OSError as error:
        raise ServerFailed(f"{name} did not start: {error.strerror}") from error


def _is_ready(client: LoadClient, program: ChildProgram, cancelled: Callable[[], bool]) -> bool:
    """Wait until the server answers; whether it does."""
    try:
        client.wait_until_ready(lambda _error: not program.has_ended and not cancelled())
    except (Refused, OSError, ValueError):
        return False
    return _is_its_answer(client, program)


def _is_its_answer(client: LoadClient, program: ChildProgram) -> bool:
    """Whether it is this program that listens, and not another one that took the port."""
    try:
        return program.has_started(client.process())
    except (psutil.Error, InvalidValueError):
        return True  # the system does not tell


def _free_port() -> int:
    with socket.socket() as tried:
        tried.bind((_HOST, 0))
        return int(tried.getsockname()[1])


def _is_taken(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((_HOST, port))
        except OSError:
            return True
        return False
