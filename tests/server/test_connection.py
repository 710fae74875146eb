"""Connections of clients that never finish what they send, or take nothing of what they get."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from time import monotonic, sleep
from typing import Any

import pytest
from fakes.listening import listening

from localspec.server import connection

GONE = threading.Event()


async def _fine(scope: Any, receive: Any, send: Any) -> None:
    """Answers every request without reading its body; /long with more than anyone wants."""
    if scope["path"] == "/long":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        sending = asyncio.create_task(_send_much(send))
        while (await receive())["type"] != "http.disconnect":
            pass
        sending.cancel()
        GONE.set()
        return
    start = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]}
    await send(start)
    await send({"type": "http.response.body", "body": b"fine"})


async def _send_much(send: Any) -> None:
    while True:
        await send({"type": "http.response.body", "body": b"x" * 2**16, "more_body": True})
        # A write to a client that has left does not wait, so nobody else would ever have a turn.
        await asyncio.sleep(0)


@pytest.fixture
def port() -> Iterator[int]:
    GONE.clear()
    with listening(_fine) as port:
        yield port


def received(client: socket.socket, most: int) -> bytes:
    """What has come; it fails if the server has hung up."""
    data = client.recv(most)
    assert data
    return data


@pytest.mark.parametrize(
    ("begins", "goes_on"),
    [
        (b"", b""),
        (b"GET / HTTP/1.1\r\nHost: x\r\n", b"X: y\r\n"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\n", b"X: y\r\n"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
    ids=["silent", "headers", "second request", "body"],
)
def test_who_never_ends_a_request_is_hung_up_on(
    port: int, begins: bytes, goes_on: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(0.1)
        client.sendall(begins)
        ends = monotonic() + 20
        try:
            while monotonic() < ends:
                try:
                    if not client.recv(1000):
                        return
                except TimeoutError:
                    client.sendall(goes_on)
        except ConnectionError:
            return
    raise AssertionError("the connection was never closed")


def test_who_comes_again_is_answered_again(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as client:
        for _ in range(3):
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = b""
            while not answer.endswith(b"fine"):
                answer += received(client, 1000)
            assert answer.startswith(b"HTTP/1.1 200")


def test_who_takes_nothing_of_an_answer_is_hung_up_on(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would keep a slot for ever."""
    monkeypatch.setattr(connection, "_UNREAD_SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
        assert GONE.wait(20)


@pytest.mark.slow
def test_who_is_slow_gets_it_all(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes something within each limit, and longer than a limit for all."""
    monkeypatch.setattr(connection, "_UNREAD_SECONDS", 3)
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(8):
            sleep(0.5)
            taken = 0
            while taken < 2**21:
                taken += len(received(client, 2**16))
        assert not GONE.is_set()


def test_connections_beyond_the_limit_are_told_so_or_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "_TOLD", 2)
    with listening(_fine, limit_concurrency=4) as port, ExitStack() as stack:
        address = ("127.0.0.1", port)
        clients = [
            stack.enter_context(socket.create_connection(address, timeout=20)) for _ in range(8)
        ]
        # Once the last is closed, the server has taken all of them.
        with suppress(ConnectionError):
            assert clients[-1].recv(1) == b""
        answers = []
        for client in clients:
            try:
                client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                answers.append(client.recv(12)[9:12])
            except ConnectionError:
                answers.append(b"")
        # Each that is told so leaves, until there is room again.
        assert answers == [b"503"] * 3 + [b"200"] * 3 + [b""] * 2
