"""Workers of tests: real ones, one that is played, and a proxy that delays, stalls and cuts."""

import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from localspec.llama import rpc, rpc_build
from localspec.llama.rpc_server import RpcServer
from localspec.workers import protocol
from localspec.workers.address import Address

# In the user's cache, which tests do not see later.
_BUILT = rpc_build.built_file()


def require_rpc() -> None:
    """Skip a test where llama.cpp has no RPC."""
    file = rpc_build.built_file()
    if _BUILT.is_file() and not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_BUILT, file)
    if not rpc.is_available():
        pytest.skip("llama.cpp has no RPC here: localspec worker --build compiles it")


@contextmanager
def real_worker(port: int = 0) -> Iterator[RpcServer]:
    """A worker in a process of its own."""
    with RpcServer(Address("127.0.0.1", port)) as worker:
        yield worker


class Listener:
    """Listens at a port of its own; `serve` gets each connection, in a thread."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._server.getsockname())
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                self._connections.append(connection)
                threading.Thread(target=self._run, args=[connection], daemon=True).start()

    def _run(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            self._serve(connection)

    def cut(self) -> None:
        """Close all connections."""
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._server.close()
        self.cut()


class PlayedWorker(Listener):
    """Answers each request with what `answer` returns for command and data; None closes."""

    def __init__(self, answer: Callable[[int, bytes], bytes | None]) -> None:
        super().__init__(self._play)
        self.requests: list[tuple[int, bytes]] = []
        self._answer = answer

    def _play(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as requests:
            while header := requests.read(protocol.REQUEST.size):
                command, size = protocol.REQUEST.unpack(header)
                data = requests.read(size)
                self.requests.append((command, data))
                answer = self._answer(command, data)
                if answer is None:
                    return
                connection.sendall(answer)


class Proxy(Listener):
    """Stands between a worker and those that use it.

    delay: seconds by which each answer comes later. cut_after: how many bytes to the worker it lets
    through before it cuts. `stall` lets nothing through any more, `cut` closes the connections.
    """

    def __init__(
        self, worker: Address, *, delay: float = 0, cut_after: float = float("inf")
    ) -> None:
        self._worker = worker
        self._left = cut_after
        self._delay = delay
        self._open = threading.Event()
        self._open.set()
        super().__init__(self._relay)

    def stall(self) -> None:
        """Let no answer through any more; the connections stay."""
        self._open.clear()

    def _relay(self, client: socket.socket) -> None:
        with socket.create_connection(self._worker) as worker:
            for each in (client, worker):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=self._back, args=[worker, client], daemon=True)
            back.start()
            try:
                while data := client.recv(1 << 16):
                    self._left -= len(data)
                    if self._left < 0:
                        return
                    worker.sendall(data)
            finally:
                worker.shutdown(socket.SHUT_RDWR)

    def _back(self, worker: socket.socket, client: socket.socket) -> None:
        late = threading.Event()
        with suppress(OSError):
            while data := worker.recv(1 << 16):
                late.wait(self._delay)
                self._open.wait()
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)

    def __exit__(self, *_exc: object) -> None:
        super().__exit__()
        self._open.set()


def sized(data: bytes) -> bytes:
    """An answer with its size."""
    return protocol.SIZE.pack(len(data)) + data
