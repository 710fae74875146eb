"""The link to a worker: what it passes on, and what it answers where the worker is gone.

The tests are the library: they send its requests and read the answers.
"""

import socket
from collections.abc import Callable

import pytest
from fakes.workers import Listener, PlayedWorker, Proxy, sized

from localspec.errors import InvalidValueError
from localspec.workers import protocol
from localspec.workers.address import Address
from localspec.workers.link import TIMEOUT_VARIABLE, Link, timeout_setting

SET_TENSOR, SET_TENSOR_HASH, GRAPH_COMPUTE = 6, 7, 10
ANSWERS = {
    protocol.HELLO: protocol.hello(),
    protocol.DEVICE_COUNT: b"\2\0\0\0",
    SET_TENSOR_HASH: b"\0",
}


def asked(library: socket.socket, command: int, data: bytes = b"") -> bytes:
    """The answer to a request, which has the size that the library expects."""
    wanted = protocol.answer_size(command, data)
    library.sendall(protocol.request(command, data))
    if wanted is None:
        return b""
    with library.makefile("rb") as answers:
        assert answers.read(8) == protocol.SIZE.pack(wanted)
        answer = answers.read(wanted)
    assert len(answer) == wanted
    return answer


def tensor(size: int) -> bytes:
    """The data of a request for a tensor of so many bytes."""
    return bytes(300) + protocol.SIZE.pack(size)


def played(command: int, data: bytes) -> bytes | None:
    """A worker that is well."""
    if command == protocol.GET_TENSOR:
        (size,) = protocol.SIZE.unpack(data[-8:])
        return sized(b"\7" * size)
    return sized(ANSWERS[command]) if command in ANSWERS else b""


def connected(link: Link) -> socket.socket:
    """The library's connection."""
    host, _, port = link.endpoint.partition(":")
    return socket.create_connection((host, int(port)), 10)


def test_requests_and_answers_of_any_size_are_passed_on() -> None:
    large = bytes(range(256)) * 20_000
    with PlayedWorker(played) as worker, connected(link := Link(worker.address)) as library:
        asked(library, SET_TENSOR, large)
        assert asked(library, protocol.DEVICE_COUNT) == b"\2\0\0\0"
        assert asked(library, protocol.GET_TENSOR, tensor(3_000_000)) == b"\7" * 3_000_000
        assert asked(library, protocol.GET_TENSOR, tensor(0)) == b""
    assert worker.requests[0] == (SET_TENSOR, large)
    assert link.lost is None


def test_neither_side_hears_of_other_ways_than_tcp() -> None:
    said = protocol.hello()[:4] + b"\1" * 24
    with PlayedWorker(lambda *_: sized(said)) as worker, connected(Link(worker.address)) as library:
        assert asked(library, protocol.HELLO, b"\1" * 24) == protocol.hello()
    assert worker.requests == [(protocol.HELLO, bytes(24))]


def all_stand_ins(library: socket.socket) -> None:
    """Everything that the library may still ask for has an answer."""
    assert asked(library, SET_TENSOR, bytes(100_000)) == b""
    assert asked(library, GRAPH_COMPUTE, bytes(10)) == b""
    assert asked(library, SET_TENSOR_HASH, bytes(10)) == b"\1"
    assert asked(library, protocol.DEVICE_COUNT) == bytes(4)
    assert asked(library, protocol.GET_TENSOR, tensor(70_000)) == bytes(70_000)
    assert asked(library, protocol.HELLO, bytes(24)) == protocol.hello()


@pytest.mark.parametrize(
    ("answer", "timeout", "why"),
    [
        (lambda *_: None, None, "it closed the connection"),
        (lambda *_: sized(b"1234567"), None, "its answer has another size than it must have"),
        (lambda *_: protocol.SIZE.pack(4), 0.2, "it did not answer for 0.2 seconds"),
    ],
    ids=["closes", "answers wrongly", "is silent"],
)
def test_a_worker_that_is_gone(
    answer: Callable[[int, bytes], bytes | None], timeout: float | None, why: str
) -> None:
    with (
        PlayedWorker(answer) as worker,
        connected(link := Link(worker.address, timeout)) as library,
    ):
        assert asked(library, protocol.DEVICE_COUNT) == bytes(4)
        assert link.lost == why
        all_stand_ins(library)
    with connected(link) as library:
        all_stand_ins(library)
    assert link.lost == why


def test_an_answer_that_breaks_off_is_filled_up() -> None:
    wanted = tensor(3_000_000)

    def break_off(connection: socket.socket) -> None:
        with connection.makefile("rb") as requests:
            requests.read(protocol.REQUEST.size + len(wanted))
        connection.sendall(protocol.SIZE.pack(3_000_000) + b"\7" * 2_000_000)

    with Listener(break_off) as worker, connected(link := Link(worker.address)) as library:
        answer = asked(library, protocol.GET_TENSOR, wanted)
        assert answer.rstrip(b"\0") == b"\7" * 2**20
    assert link.lost == "it closed the connection"


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address(*server.getsockname())
    with connected(link := Link(address)) as library:
        all_stand_ins(library)
    assert link.lost


def test_another_version_is_not_told_to_the_library() -> None:
    with (
        PlayedWorker(lambda *_: sized(protocol.hello((8, 0, 0)))) as worker,
        connected(link := Link(worker.address)) as library,
    ):
        assert asked(library, protocol.HELLO, bytes(24)) == protocol.hello()
        assert link.lost == "it speaks version 8.0.0 of the protocol"


def test_the_library_may_connect_again() -> None:
    with PlayedWorker(played) as worker:
        link = Link(worker.address)
        for _ in range(3):
            with connected(link) as library:
                assert asked(library, protocol.DEVICE_COUNT) == b"\2\0\0\0"
        assert link.lost is None


def test_a_cut_while_the_library_sends() -> None:
    with (
        PlayedWorker(played) as worker,
        Proxy(worker.address) as proxy,
        connected(link := Link(proxy.address)) as library,
    ):
        assert asked(library, protocol.DEVICE_COUNT) == b"\2\0\0\0"
        proxy.cut()
        # The system notices while one of these is sent, or at the answer.
        for _ in range(20):
            asked(library, SET_TENSOR, bytes(1_000_000))
        assert asked(library, protocol.GET_TENSOR, tensor(10)) == bytes(10)
        assert link.lost


@pytest.mark.parametrize("text", ["x", "0", "-1", "nan", "inf"])
def test_a_wrong_timeout_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TIMEOUT_VARIABLE, text)
    with pytest.raises(InvalidValueError, match=f"{TIMEOUT_VARIABLE} is '{text}'"):
        timeout_setting()
