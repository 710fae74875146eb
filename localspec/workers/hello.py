"""Hello: ask a worker for its version, over a socket of ours, before the library connects to it."""

import socket

from localspec.errors import WorkerError
from localspec.workers import protocol
from localspec.workers.address import Address

_TIMEOUT = 5.0


def ask_version(address: Address, timeout: float = _TIMEOUT) -> tuple[int, int, int]:
    """Return the version of the protocol that a worker speaks.

    timeout: the most seconds for each of connecting and answering. Raises WorkerError.
    """
    try:
        with socket.create_connection(address, timeout) as worker:
            return _said_hello(worker)
    except TimeoutError as error:
        raise WorkerError(
            f"the worker {address} does not answer within {timeout:g} seconds; it serves one "
            "program at a time: end the other one, or check the address"
        ) from error
    except OSError as error:
        raise WorkerError(
            f"the worker {address} cannot be reached ({error.strerror or error}); start it there: "
            f"localspec worker --host {address.host} --port {address.port}"
        ) from error


def _said_hello(worker: socket.socket) -> tuple[int, int, int]:
    worker.sendall(protocol.request(protocol.HELLO, protocol.NO_CAPABILITIES))
    wanted = protocol.SIZE.pack(protocol.HELLO_SIZE)
    with worker.makefile("rb") as answers:
        size = answers.read(protocol.SIZE.size)
        answer = answers.read(protocol.HELLO_SIZE) if size == wanted else b""
    if len(answer) < protocol.HELLO_SIZE:
        host, port = worker.getpeername()[:2]
        raise WorkerError(
            f"what listens at {host}:{port} is no worker of this version of llama.cpp; install "
            "the same llama-cpp-python there, and start localspec worker"
        )
    return protocol.version_in(answer)


def require_version(address: Address, timeout: float = _TIMEOUT) -> None:
    """Raise WorkerError unless a worker answers and speaks the version that we know."""
    version = ask_version(address, timeout)
    if version != protocol.VERSION:
        raise WorkerError(
            f"the worker {address} speaks version {protocol.version_text(version)} of llama.cpp's "
            f"protocol, and here it is {protocol.version_text(protocol.VERSION)}; install the same "
            "llama-cpp-python on both machines"
        )
