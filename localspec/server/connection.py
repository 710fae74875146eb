"""Connection: uvicorn's, with an end to clients that never finish a request or take no answer."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# The most seconds that the headers of a request may take, and a body that nobody reads any more.
_SECONDS = 20.0
# The most seconds in which a client takes nothing of what was written for it.
_UNREAD_SECONDS = 60.0
# Of connections beyond the limit, so many are told so; further ones are closed at once.
_TOLD = 64


class Connection(H11Protocol):
    """A connection that is closed if its client lets the server wait for too long.

    uvicorn waits for ever for headers, for the rest of a body after the answer was sent, and for a
    client that does not read its answer; a few such clients would use up all connections, or all
    slots. It is always h11, which bounds headers.
    """

    _due: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.limit_concurrency and len(self.connections) > self.limit_concurrency + _TOLD:
            transport.abort()
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(_UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._forget_unread()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()
        self._forget_unread()

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

    def _forget_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
