"""Exchange: reads the body of a request, and writes an answer whole or as events."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from localspec.server.catalog import Catalog
from localspec.server.errors import JSON, ApiError
from localspec.server.fields import Fields
from localspec.server.guard import error_body
from localspec.server.model_switch import ModelSwitch
from localspec.server.service import Service

log = logging.getLogger("localspec.server")

_Value = TypeVar("_Value")

# The most seconds that a body may take to arrive.
_BODY_SECONDS = 60
# The lines that are made before the client has taken the first of them.
_LINES_AHEAD = 16
# The most lists, objects, strings and members of a body, beside those of a prompt.
_MOST_MARKS = 500_000
_EVENTS = "text/event-stream"
# After so many seconds without a line, a heartbeat is sent: clients and proxies take a stream that
# stays silent, as while a long prompt is read, for a dead one.
_SILENT_SECONDS = 15.0


class JsonAnswer(JSONResponse):
    """JSON in ASCII: what a client sent may hold halves of characters, which UTF-8 has not."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def switch_of(request: Request) -> ModelSwitch:
    """What lends the models of the server behind a request."""
    switch: ModelSwitch = request.app.state.switch
    return switch


def catalog_of(request: Request) -> Catalog:
    """The models of the server behind a request."""
    return switch_of(request).catalog


def lease(request: Request, body: Fields) -> AbstractAsyncContextManager[Service]:
    """The service of the model that a body names. Raises ApiError; see `ModelSwitch`."""
    return switch_of(request).lease(body.text("model"))


async def body_of(request: Request) -> Fields:
    """The JSON object that was sent. Raises ApiError."""
    if (coding := request.headers.get("content-encoding", "identity").lower()) != "identity":
        raise ApiError(415, f"Content-Encoding is {coding:.40}; send the body as it is")
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            content = await request.body()
    except TimeoutError as error:
        raise ApiError(
            408, f"the body took longer than {_BODY_SECONDS} s; send it again"
        ) from error
    _require_simple(content, max(catalog_of(request).contexts.values(), default=0))
    try:
        return Fields(json.loads(content, parse_constant=_no_number, parse_float=_finite))
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        if reason.startswith("Exceeds the limit"):  # Python's, with advice for Python
            reason = "a number in it has too many digits"
        raise ApiError(400, f"the body is no valid JSON: {reason:.100}") from error


def _require_simple(content: bytes, context: int) -> None:
    """Raise ApiError for a body whose reading would take seconds, in which nothing else goes on.

    Long texts take little time, and millions of members much. A prompt that fits the context has
    few of these marks, within its texts too.
    """
    most = _MOST_MARKS + 8 * context
    for mark, what in ((b"[", "lists"), (b"{", "objects"), (b'"', "quotes"), (b",", "members")):
        count = content.count(mark)
        if count > most:
            raise ApiError(400, f"the body has {count} {what}; send {most} at most")


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    """A number; one beyond what a float can hold would come back as no JSON."""
    value = float(text)
    if abs(value) == float("inf"):
        raise ValueError(f"{text:.40} is too large a number")
    return value


async def unless_gone(request: Request, work: Awaitable[_Value]) -> _Value:
    """The value of the work, which is cancelled as soon as the client goes away."""
    task = asyncio.ensure_future(work)
    gone = asyncio.create_task(_until_gone(request))
    try:
        await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        gone.cancel()
        task.cancel()


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def event_line(name: str, body: JSON) -> str:
    """An event with a name, as a line of text/event-stream."""
    return f"event: {name}\ndata: {json.dumps(body)}\n\n"


def error_event(body: JSON) -> str:
    """The event of an error, behind the first line of a stream."""
    return event_line("error", body)


def comment() -> str:
    """The heartbeat of protocols that have no event for it."""
    return ": working\n\n"


async def event_stream(
    request: Request,
    lines: AsyncGenerator[str],
    *,
    heartbeat: Callable[[], str] = comment,
    error_line: Callable[[JSON], str] = error_event,
    media_type: str = _EVENTS,
) -> Response:
    """Lines of text/event-stream. What fails before the first line has a status of its own.

    heartbeat: what is sent while no line comes. Some clients count events alone, not comments.
    error_line: writes the body of an error that comes later.
    """
    made = _Lines(lines, heartbeat)
    try:
        first = await unless_gone(request, made.next())
        if isinstance(first, Exception):
            raise first
    except BaseException:
        made.making.cancel()
        raise
    sent = _sent(first, made, request.url.path, error_line)
    return _EventStream(sent, made.making, media_type)


class _Lines:
    """Lines that a task makes, a few ahead of their reader.

    The task is cancelled once: Starlette cancels a response again at each `await`, and no text
    could wait for the end of its last step.
    """

    def __init__(self, lines: AsyncGenerator[str], heartbeat: Callable[[], str]) -> None:
        self._lines = lines
        self._heartbeat = heartbeat
        self._made: asyncio.Queue[str | Exception | None] = asyncio.Queue(_LINES_AHEAD)
        self.making = asyncio.create_task(self._make())

    async def next(self) -> str | Exception | None:
        """The next line, or a heartbeat if it takes long; None after the last, or an error."""
        try:
            async with asyncio.timeout(_SILENT_SECONDS):
                return await self._made.get()
        except TimeoutError:
            # A line that was made just now comes first: events have numbers.
            return self._heartbeat() if self._made.empty() else self._made.get_nowait()

    async def _make(self) -> None:
        try:
            async with aclosing(self._lines):
                async for line in self._lines:
                    await self._made.put(line)
            await self._made.put(None)
        except Exception as error:
            await self._made.put(error)


async def _sent(
    first: str | None, lines: _Lines, path: str, error_line: Callable[[JSON], str]
) -> AsyncIterator[str]:
    line: str | Exception | None = first
    while isinstance(line, str):
        yield line
        line = await lines.next()
    if line is not None:
        log_failed_stream(line)
        yield error_line(error_body(ApiError.of(line), path))


def log_failed_stream(error: Exception) -> None:
    """Log what ended a stream; where the request is to blame, the reason is enough."""
    told = ApiError.of(error)
    log.error("a stream failed: %s", told.message, exc_info=error if told.status >= 500 else None)


class _EventStream(StreamingResponse):
    """A stream of events. making: the task that makes them, which ends with the response."""

    def __init__(
        self, lines: AsyncIterator[str], making: asyncio.Task[None], media_type: str
    ) -> None:
        super().__init__(lines, media_type=media_type, headers={"Cache-Control": "no-store"})
        self._making = making

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A generator that was never begun, or that waits within a `send`, would not end by itself.
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._making.cancel()


async def data_lines(chunks: AsyncGenerator[JSON], *, done: bool = True) -> AsyncGenerator[str]:
    """A stream of chunks. done: whether a line says that it ends, as in OpenAI's protocols."""
    async with aclosing(chunks):
        async for chunk in chunks:
            yield f"data: {json.dumps(chunk)}\n\n"
        if done:
            yield "data: [DONE]\n\n"
