"""A client of a server on this machine, ours or llama-server, for measurements."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse
from time import monotonic, perf_counter, sleep
from typing import Any
from urllib.parse import urlsplit

import psutil

from localspec.errors import InvalidValueError

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_PATIENCE = 300.0
# A large model from a slow disk takes minutes.
LOAD_SECONDS, _POLL_SECONDS = 900.0, 0.05
_COMPLETIONS = "/v1/completions"
Body = Mapping[str, Any]


class Refused(Exception):
    """The server answered with an error, or a stream ended before its end."""


class LoadClient:
    """Speaks to the server at a URL of this machine. Raises InvalidValueError for another URL."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "//" in url else f"//{url}")
        if parts.hostname not in _LOOPBACK or parts.port is None:
            raise InvalidValueError(
                f"url is {url!r}; it must be that of a server on this machine, such as "
                "http://127.0.0.1:8080"
            )
        self.host, self.port = parts.hostname, parts.port

    def get(self, path: str) -> Any:
        """The JSON at a path."""
        with self._answer("GET", path, None) as answer:
            return json.load(answer)

    def wait_until_ready(
        self, waits: Callable[[Refused], bool] = lambda error: " 503 " in str(error)
    ) -> None:
        """Wait until the server has loaded its model. Raises Refused if it does not answer.

        waits: whether to ask again after an error; by default only while the model is loaded.
        """
        ends = monotonic() + LOAD_SECONDS
        while True:
            try:
                self.get("/health")
                return
            except Refused as error:
                if not waits(error) or monotonic() > ends:
                    raise
                sleep(_POLL_SECONDS)

    def post(self, path: str, body: Body) -> Any:
        """The JSON that answers a body."""
        with self._answer("POST", path, body) as answer:
            return json.load(answer)

    def events(self, body: Body, path: str = _COMPLETIONS) -> Iterator[Any]:
        """The parts of a streamed answer. Raises Refused if the stream breaks off.

        To leave in mid-stream, close the iterator.
        """
        ended = False
        with self._answer("POST", path, {**body, "stream": True}) as answer:
            while line := answer.readline():
                if not line.startswith(b"data: "):
                    continue
                if line.startswith(b"data: [DONE]"):
                    ended = True
                    break
                event = json.loads(line[6:])
                if "error" in event:
                    raise Refused(f"{path}: {event['error']}")
                yield event
        if not ended:
            raise Refused(f"{path}: the stream broke off")

    def seconds(self, body: Body) -> tuple[float, float]:
        """Seconds from a request to the first part of its text, and to the end."""
        began, first = perf_counter(), 0.0
        for _ in self.events(body):
            first = first or perf_counter() - began
        return first, perf_counter() - began

    def slots(self) -> list[dict[str, Any]]:
        """What the server says of its slots."""
        found: list[dict[str, Any]] = self.get("/slots")
        return found

    def process(self) -> psutil.Process:
        """The server's process. Raises InvalidValueError if nothing listens there."""
        for each in psutil.net_connections("tcp"):
            listens = each.status == psutil.CONN_LISTEN
            if each.pid and listens and each.laddr and each.laddr.port == self.port:
                return psutil.Process(each.pid)
        raise InvalidValueError(f"nothing listens on port {self.port}; start localspec serve")

    @contextmanager
    def _answer(self, method: str, path: str, body: Body | None) -> Iterator[HTTPResponse]:
        with closing(HTTPConnection(self.host, self.port, timeout=_PATIENCE)) as connection:
            sent = None if body is None else json.dumps(body)
            try:
                connection.request(method, path, sent, {"Content-Type": "application/json"})
                answer = connection.getresponse()
            except (OSError, HTTPException) as error:
                raise Refused(f"{path}: {error!r}") from error
            with closing(answer):
                if answer.status != 200:
                    raise Refused(f"{path}: {answer.status} {answer.read(200)!r}")
                yield answer
