"""Guard: who may use the server, and how much they may send, before a request is read.

A server on this machine can be reached by every page that a browser shows, also by name (DNS
rebinding), so the names of hosts and the origins of pages are checked.
"""

import hmac
import json
from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from localspec.server.errors import ApiError
from localspec.server.log import log_refusal
from localspec.server.page import page_paths

# Anyone may ask whether the server is there, and see the page, which then asks for the key.
_OPEN_PATHS = ("/health", "/v1/health", *page_paths())
# The most bytes of the headers and the path of a request.
MOST_HEADER_BYTES = 64 * 1024
# What an answer says that a page may read too.
_SHOWN_HEADERS = b"retry-after"


class Guard:
    """Refuses requests that are not for this server's users; everything else passes.

    hosts: names under which the server may be addressed, without ports; empty: any. origins: of
    pages elsewhere that may use it (CORS); "*" is any. key: the API key; None: none is needed.
    most_bytes: of a body.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Sequence[str],
        origins: Sequence[str] = (),
        key: str | None = None,
        most_bytes: int,
    ) -> None:
        self._app = app
        self._hosts = tuple(_name(host) for host in hosts)
        self._origins = tuple(origin.lower().rstrip("/") for origin in origins)
        self._key = key
        self._most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        if scope["path"].lower().startswith("http://"):  # as proxies write it (RFC 9112, 3.2.2)
            headers["host"], _, path = scope["path"][7:].partition("/")
            scope = {**scope, "path": f"/{path}", "raw_path": f"/{path}".encode()}
        origins = [
            value.decode("latin-1") for name, value in scope["headers"] if name.lower() == b"origin"
        ]
        named = bool(origins) and all(map(self._is_named, origins))
        if named:
            # Errors too: without these headers a page cannot read why it was refused.
            asked = headers.get("access-control-request-headers", "")
            send = _with_cors(send, origins[-1], asked)
        try:
            self._check(scope, headers, origins)
        except ApiError as error:
            log_refusal(error, scope["method"], scope["path"])
            await respond(error, scope, send)
            return
        if named and scope["method"] == "OPTIONS":
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await self._app(scope, self._limited(receive), send)

    def _check(self, scope: Scope, headers: dict[str, str], origins: Sequence[str]) -> None:
        """Raise ApiError for a request that is refused."""
        # The parser's own limit does not count what comes in one piece.
        size = sum(len(name) + len(value) for name, value in scope["headers"])
        if size + len(scope.get("raw_path", b"")) > MOST_HEADER_BYTES:
            raise ApiError(431, f"the headers are larger than {MOST_HEADER_BYTES} bytes; send less")
        host = _name(headers.get("host", ""))
        if self._hosts and not host:  # as of HTTP/1.0
            raise ApiError(
                403,
                "the request has no Host header, which this server checks; send it, such as Host: "
                f"{self._hosts[0]}",
            )
        if self._hosts and host not in self._hosts:
            raise ApiError(
                403,
                f"this server is not called {host:.80}; use {self._hosts[0]}, or start it with "
                f"--allow-host {host:.80}",
            )
        for origin in origins:
            if not self._is_named(origin) and not _is_own(origin, headers.get("host", "")):
                raise ApiError(403, _refusal(origin))
        preflight = scope["method"] == "OPTIONS"
        if self._key and scope["path"] not in _OPEN_PATHS and not preflight:
            # Clients that hold a token of another service may send both.
            given = (headers.get("x-api-key", ""), _bearer(headers.get("authorization", "")))
            key = self._key.encode()
            if not any([hmac.compare_digest(each.encode(), key) for each in given]):
                error = ApiError(
                    401,
                    "the API key is missing or wrong; send it as Authorization: Bearer KEY",
                    code="invalid_api_key",
                )
                error.headers["WWW-Authenticate"] = "Bearer"
                raise error
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length[:18]) > self._most_bytes:
            raise self._too_large()

    def _is_named(self, origin: str) -> bool:
        return origin.lower() in self._origins or "*" in self._origins

    def _limited(self, receive: Receive) -> Receive:
        """Count the bytes of a body whose length was not announced."""
        count = 0

        async def limited() -> Message:
            nonlocal count
            message = await receive()
            count += len(message.get("body", b""))
            if count > self._most_bytes:
                raise self._too_large()
            return message

        return limited

    def _too_large(self) -> ApiError:
        return ApiError(413, f"the body is larger than {self._most_bytes} bytes; send less")


async def respond(error: ApiError, scope: Scope, send: Send) -> None:
    """Send an error in the words of the protocol that the path belongs to."""
    body = json.dumps(error_body(error, scope["path"])).encode()
    headers = [(b"content-type", b"application/json")]
    headers += [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def error_body(error: ApiError, path: str) -> dict[str, object]:
    """The body of an error for a path."""
    if path.startswith("/v1/messages"):
        return error.as_anthropic()
    return error.as_ollama() if path.startswith("/api/") else error.as_openai()


def _name(host: str) -> str:
    """The name in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    name, _, _ = host.partition(":")
    return host.lower() if host.count(":") > 1 else name.lower()  # a bare address of IPv6


def _is_own(origin: str, host: str) -> bool:
    """Whether a page came from this server itself."""
    return origin.lower().partition("://")[2] == host.lower() != ""


def _refusal(origin: str) -> str:
    """What a page is told whose origin was not named."""
    if origin.lower() == "null":  # any sandboxed frame has this origin
        return "pages without an origin, such as files, may not use this server; serve the page"
    return f"pages of {origin:.80} may not use this server; start it with --cors {origin:.80}"


def _bearer(value: str) -> str:
    kind, _, key = value.partition(" ")
    return key.strip() if kind.lower() == "bearer" else ""


def _with_cors(send: Send, origin: str, asked: str) -> Send:
    """Let a browser hand the answer to a page of this origin.

    asked: the headers that the page wants to send, of which none is forbidden: OpenAI's client for
    browsers has a dozen of its own.
    """

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [
                *message.get("headers", []),
                (b"access-control-allow-origin", origin.encode("latin-1")),
                (b"access-control-allow-headers", asked.encode("latin-1")),
                (b"access-control-expose-headers", _SHOWN_HEADERS),
                (b"access-control-allow-methods", b"GET, POST, DELETE, OPTIONS"),
                (b"vary", b"origin"),
            ]
        await send(message)

    return sending
