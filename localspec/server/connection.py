"""Connection: uvicorn's, with an end to clients that never finish a request."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# The most seconds that the headers of a request may take, and a body that nobody reads any more.
_SECONDS = 20.0


class Connection(H11Protocol):
    """A connection that is closed if its client owes a part of a request for too long.

    uvicorn waits for ever for headers, and for the rest of a body after the answer was sent; a few
    such clients would use up all connections. It is always h11, which bounds headers.
    """

    _due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()

    def _watch(self) -> None:
        """Start or stop the time that the client has."""
        answered = self.cycle is None or self.cycle.response_complete
        if not (answered and self.conn.their_state in (h11.IDLE, h11.SEND_BODY)):
            self._forget()
        elif self._due is None:
            self._due = self.loop.call_later(_SECONDS, self.transport.close)

    def _forget(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
