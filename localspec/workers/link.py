"""Link: the way from llama.cpp to a worker, which stays open when the worker is gone.

llama.cpp's RPC backend ends the process when a connection breaks, and it waits for an answer for
ever. So it is connected to a socket of this process, whose thread passes everything on. Where the
worker closes the connection, answers wrongly or does not answer in time, the link answers in its
place until the library has come to an end, and `Link.lost` says why. Whoever reads what the library
computed must look at `lost` afterwards: the link sets it before it answers itself.
"""

import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from io import BufferedReader
from typing import Self

from localspec.errors import InvalidValueError
from localspec.workers import protocol
from localspec.workers.address import Address

# Shown by the server; elsewhere errors and notices say it.
log = logging.getLogger("localspec.workers")
log.addHandler(logging.NullHandler())

TIMEOUT_VARIABLE = "LOCALSPEC_RPC_TIMEOUT"
# The most seconds without a byte from a worker that owes an answer, all passes before it included.
_TIMEOUT = 120.0
_CONNECT_TIMEOUT = 10.0
_PIECE = 2**20
# A request or answer of at most so many bytes is passed on as a whole.
_SMALL = 2**16
# A machine that is gone is noticed after 10 + 4 * 5 seconds, whatever its worker owes.
_KEEPALIVE = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4))
_USER_TIMEOUT = (("TCP_USER_TIMEOUT", 30_000),)


class Link:
    """A socket of this process that leads to the worker at `address`, over one connection.

    timeout: the most seconds that the worker may be silent while it owes an answer; None: those of
    LOCALSPEC_RPC_TIMEOUT, else 120. endpoint: the link's own address, for the library. lost: why
    the worker is gone, None while it is there; it stays set. is_connected: whether the library is
    connected.
    """

    def __init__(self, address: Address, timeout: float | None = None) -> None:
        self.address = address
        self.lost: str | None = None
        self.is_connected = False
        self._timeout = timeout or timeout_setting()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.endpoint = "{}:{}".format(*self._server.getsockname())
        # It never ends, because the library ends the process if it cannot connect.
        threading.Thread(target=self._serve, name=f"rpc {address}", daemon=True).start()

    def _serve(self) -> None:
        while True:
            library, _ = self._server.accept()
            self.is_connected = True
            # The library may close the connection at any time.
            with library, suppress(OSError):
                library.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._relay(library)
            self.is_connected = False

    def _relay(self, library: socket.socket) -> None:
        """Pass requests and answers on, until the library closes the connection."""
        with _Worker(self) as worker, library.makefile("rb") as requests:
            while len(header := requests.read(protocol.REQUEST.size)) == protocol.REQUEST.size:
                command, size = protocol.REQUEST.unpack(header)
                data = requests.read(min(size, _SMALL))
                if len(data) < min(size, _SMALL):
                    return
                if command == protocol.HELLO:
                    # Both sides would leave TCP, and this link, if they could.
                    data = protocol.NO_CAPABILITIES
                worker.send(header + data)
                left = size - len(data)
                while left and (piece := requests.read(min(left, _PIECE))):
                    worker.send(piece)
                    left -= len(piece)
                wanted = protocol.answer_size(command, data)
                if wanted is not None:
                    for piece in worker.answer(command, wanted):
                        library.sendall(piece)

    def connect(self) -> socket.socket:
        """Connect to the worker. Raises OSError."""
        worker = socket.create_connection(self.address, _CONNECT_TIMEOUT)
        worker.settimeout(self._timeout)
        worker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        worker.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (*_KEEPALIVE, *_USER_TIMEOUT):
            if hasattr(socket, name):
                worker.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        return worker

    def lose(self, reason: str | OSError) -> None:
        """Remember why the worker is gone."""
        if isinstance(reason, TimeoutError):
            reason = f"it did not answer for {self._timeout:g} seconds"
        elif isinstance(reason, OSError):
            reason = reason.strerror or str(reason)
        if self.lost is None:
            self.lost = reason
            log.warning("the worker %s is gone: %s", self.address, reason)


class _Worker:
    """One connection to the worker of a link. What cannot be sent any more is dropped."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._socket: socket.socket | None = None
        self._answers: BufferedReader | None = None

    def __enter__(self) -> Self:
        if self._link.lost is None:
            try:
                self._socket = self._link.connect()
                self._answers = self._socket.makefile("rb")
            except OSError as error:
                self._link.lose(error)
        return self

    def __exit__(self, *_exc: object) -> None:
        for each in (self._answers, self._socket):
            if each:
                each.close()

    def send(self, data: bytes) -> None:
        """Send a part of a request."""
        if self._socket and self._link.lost is None:
            try:
                self._socket.sendall(data)
            except OSError as error:
                self._link.lose(error)

    def answer(self, command: int, wanted: int) -> Iterator[bytes]:
        """Yield the answer of `wanted` bytes with its size, piece by piece.

        Where the worker is gone, what stands in for it, or for the rest of it.
        """
        size = protocol.SIZE.pack(wanted)
        if (told := self._read(len(size))) and told != size:
            self._link.lose("its answer has another size than it must have")
        left = wanted
        while left and (piece := self._read(min(left, _PIECE))):
            if command == protocol.HELLO:
                piece = self._checked_hello(piece)
            yield size + piece
            size, left = b"", left - len(piece)
        if left or size:
            yield size + protocol.stand_in(command, wanted)[wanted - left :]

    def _read(self, size: int) -> bytes:
        """Return the next bytes of an answer; none where the worker is gone."""
        if self._answers is None or self._link.lost is not None:
            return b""
        try:
            data = self._answers.read(size)
        except OSError as error:
            self._link.lose(error)
            return b""
        if len(data) < size:
            self._link.lose("it closed the connection")
            return b""
        return data

    def _checked_hello(self, answer: bytes) -> bytes:
        """Return an answer to HELLO that the library does not end the process for."""
        if (version := protocol.version_in(answer)) != protocol.VERSION:
            self._link.lose(f"it speaks version {protocol.version_text(version)} of the protocol")
        return protocol.hello()


def timeout_setting() -> float:
    """Return the seconds that LOCALSPEC_RPC_TIMEOUT sets, else the default."""
    text = os.environ.get(TIMEOUT_VARIABLE)
    try:
        seconds = float(text) if text else _TIMEOUT
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= threading.TIMEOUT_MAX:
        raise InvalidValueError(f"{TIMEOUT_VARIABLE} is {text!r:.80}; it must be seconds")
    return seconds
