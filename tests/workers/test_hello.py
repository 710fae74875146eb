"""What is said of a worker that cannot be used, before anything is loaded."""

import socket
import threading

import pytest
from fakes.workers import Listener, PlayedWorker, sized

from localspec.errors import WorkerError
from localspec.workers import protocol
from localspec.workers.address import Address
from localspec.workers.hello import ask_version, require_version


def test_a_worker_tells_its_version() -> None:
    with PlayedWorker(lambda *_: sized(protocol.hello((7, 1, 2)))) as worker:
        assert ask_version(worker.address) == (7, 1, 2)
    assert worker.requests == [(protocol.HELLO, bytes(24))]


@pytest.mark.parametrize("version", [(6, 0, 0), (8, 0, 0), (7, 1, 0), (7, 0, 1)])
def test_another_version_is_refused(version: tuple[int, int, int]) -> None:
    with (
        PlayedWorker(lambda *_: sized(protocol.hello(version))) as worker,
        pytest.raises(WorkerError, match=f"speaks version {protocol.version_text(version)} of"),
    ):
        require_version(worker.address)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address(*server.getsockname())
    with pytest.raises(WorkerError, match=f"cannot be reached .*--port {address.port}"):
        ask_version(address)


def test_a_name_that_nobody_has() -> None:
    with pytest.raises(WorkerError, match=r"the worker nowhere\.invalid:1 cannot be reached"):
        ask_version(Address("nowhere.invalid", 1))


def test_a_worker_that_is_busy_does_not_answer() -> None:
    over = threading.Event()
    with (
        Listener(lambda _: over.wait() and None) as worker,
        pytest.raises(WorkerError, match=r"does not answer within 0\.1 seconds; it serves one"),
    ):
        ask_version(worker.address, timeout=0.1)
    over.set()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", sized(b"7"), b""])
def test_who_is_no_worker(answer: bytes) -> None:
    with (
        PlayedWorker(lambda *_: answer or None) as other,
        pytest.raises(WorkerError, match=f"listens at {other.address} is no worker of this"),
    ):
        ask_version(other.address)
