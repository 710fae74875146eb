"""Streams: what ends them, and what is sent while nothing is written."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from starlette.requests import Request

from localspec.sampling.filters import NoTokenError
from localspec.server import exchange
from localspec.server.errors import ApiError
from localspec.server.exchange import event_stream, log_failed_stream
from localspec.server.openai_responses import error_line

SCOPE: dict[str, Any] = {
    "type": "http", "method": "POST", "path": "/v1/messages", "headers": [], "query_string": b"",
}  # fmt: skip


class Lines:
    """Lines without end. closed: whether their generator was closed."""

    def __init__(self, pause: float = 0.0) -> None:
        self.closed = False
        self._pause = pause

    async def __call__(self) -> AsyncGenerator[str]:
        try:
            while True:
                await asyncio.sleep(self._pause)
                yield "data: x\n\n"
        finally:
            self.closed = True


async def never_gone() -> Any:
    await asyncio.Event().wait()


async def soon(holds: Any) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("sent", [0, 1, 5], ids=["head", "first", "later"])
def test_a_connection_that_breaks_ends_the_text(sent: int) -> None:
    """Also before the first line, when nothing reads the lines yet."""

    async def run() -> None:
        lines, left = Lines(), sent

        async def send(_message: Any) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError("broken pipe")

        response = await event_stream(Request(SCOPE, never_gone), lines())
        scope = {**SCOPE, "asgi": {"spec_version": "2.4"}}
        with pytest.raises(Exception, match=r"broken pipe|^$"):
            await response(scope, never_gone, send)
        await soon(lambda: lines.closed)

    asyncio.run(run())


def test_a_response_that_is_never_sent_ends_the_text() -> None:
    async def run() -> None:
        lines = Lines()
        response = await event_stream(Request(SCOPE, never_gone), lines())

        async def send(_message: Any) -> None:
            await asyncio.Event().wait()

        sending = asyncio.create_task(response(SCOPE, never_gone, send))
        await asyncio.sleep(0.05)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await soon(lambda: lines.closed)

    asyncio.run(run())


def test_silence_is_filled_with_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_SILENT_SECONDS", 0.05)

    async def run() -> bytes:
        written, gone = [], asyncio.Event()

        async def send(message: Any) -> None:
            written.append(message.get("body", b""))
            if b"data" in written[-1]:
                gone.set()

        async def receive() -> Any:
            await gone.wait()
            return {"type": "http.disconnect"}

        lines = Lines(pause=0.3)
        await (await event_stream(Request(SCOPE, never_gone), lines()))(SCOPE, receive, send)
        await soon(lambda: lines.closed)
        return b"".join(written)

    text = asyncio.run(run())
    assert text.startswith(b": ")
    assert b"data: x\n\n" in text


def test_a_line_comes_before_the_heartbeat_that_it_makes_needless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time may be over before the reader has its turn; events have numbers."""
    monkeypatch.setattr(exchange, "_SILENT_SECONDS", 0)

    async def run() -> None:
        lines = Lines()
        made = exchange._Lines(lines(), lambda: "data: heartbeat\n\n")
        assert await made.next() == "data: x\n\n"
        made.making.cancel()
        await soon(lambda: lines.closed)

    asyncio.run(run())


def test_an_error_before_a_response_begins_has_a_type_and_what_other_streams_have() -> None:
    error = ApiError(400, "too long", param="input", code="context_length_exceeded")
    name, data = error_line(error.as_openai()).splitlines()[:2]
    assert name == "event: error"
    event = json.loads(data.removeprefix("data: "))
    assert event.pop("error")["message"] == "too long"
    assert event == {
        "type": "error",
        "sequence_number": 0,
        "code": "context_length_exceeded",
        "message": "too long",
        "param": "input",
    }


@pytest.mark.parametrize(
    ("error", "is_traced"), [(NoTokenError("every token is forbidden"), False), (OSError(), True)]
)
def test_a_traceback_is_logged_where_the_server_is_to_blame(
    error: Exception, is_traced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log_failed_stream(error)
    [record] = caplog.records
    assert record.getMessage().startswith("a stream failed: ")
    assert (record.exc_info is not None) is is_traced
