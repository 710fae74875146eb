"""Security: a test for each line of docs/serve.md that none of the others covers."""

import hmac
import json
import os
import re
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import psutil
import pytest
from fakes.served import PATIENCE, Served
from starlette.requests import Request

import localspec
from localspec.models import registry
from localspec.server import exchange
from localspec.server.constraint import MOST_GRAMMAR
from localspec.server.errors import ApiError
from localspec.server.exchange import body_of
from localspec.server.guard import Guard
from localspec.server.page import page_paths

COMPLETIONS = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = COMPLETIONS + b"Transfer-Encoding: chunked\r\n\r\n"


def answer_to(served: Served, sent: bytes) -> bytes:
    """The whole answer to bytes on a connection of their own, which ends after them."""
    host, _, port = served.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        answer = b""
        # Bytes that nobody reads reset a connection.
        with suppress(OSError):
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                answer += part
        return answer


def test_it_listens_on_this_machine_only(served: Served) -> None:
    parent = psutil.Process(served.process.pid)
    connections = [
        connection
        for process in (parent, *parent.children(recursive=True))
        for connection in process.net_connections("inet")
    ]
    listening = {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        # Invalid UTF-8, in every part of a request.
        (b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", {400}),
        (b"GET /v1/models/%ff%fe HTTP/1.1\r\nHost: localhost\r\n\r\n", {404}),
        (b"GET /health?\xff=%ff HTTP/1.1\r\nHost: localhost\r\n\r\n", {400}),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: \xff\xfe\r\n\r\n", {200}),
        (b"G\xffT / HTTP/1.1\r\nHost: localhost\r\n\r\n", {400}),
        # The name of the host, and the page's origin.
        (b"GET /health HTTP/1.1\r\nHost: \xff\r\n\r\n", {403}),
        (b"GET /health HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n\r\n", {400}),
        (b"GET /health HTTP/1.1\r\n\r\n", {400}),
        (b"GET /health HTTP/1.0\r\n\r\n", {403}),
        # As proxies write it, whose host counts (RFC 9112, 3.2.2).
        (b"GET http://localhost/health HTTP/1.1\r\nHost: evil.example\r\n\r\n", {200}),
        (b"GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n", {403}),
        (b"GET HTTP://evil.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n", {403}),
        (b"GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n", {400}),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://\xff\r\n\r\n", {403}),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://a.example\r\n"
         b"Origin: http://localhost\r\n\r\n", {403}),
        # Headers: of any size, and too many.
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n", {400, 431}),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 65_600 + b"\r\n\r\n", {400, 431}),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 50_000 + b"\r\n", {400, 431}),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", {400, 431}),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n", {400}),
        # Lengths and chunks that two programs could read in two ways.
        (COMPLETIONS + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", {400}),
        (COMPLETIONS + b"Content-Length: +2\r\n\r\n{}", {400}),
        (COMPLETIONS + b"Content-Length: " + b"9" * 400 + b"\r\n\r\n{}", {400, 413}),
        (COMPLETIONS + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", {400, 501}),
        (COMPLETIONS + b"Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}", {400, 501}),
        (CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n", {400}),
        (CHUNKED + b"0x2\r\n{}\r\n0\r\n\r\n", {400}),
        (CHUNKED + b"fffffffff\r\n{}", {400}),
        (CHUNKED + b"2;" + b"a" * 70_000 + b"\r\n{}\r\n0\r\n\r\n", {400}),
        (CHUNKED + b"2\r\n{}\r\n0\r\nX: " + b"a" * 100_000 + b"\r\n\r\n", {400}),
        # Trailers are no headers.
        (CHUNKED + b"2\r\n{}\r\n0\r\nHost: evil.example\r\n\r\n", {400}),
        # Other protocols and methods.
        (b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", {404}),
        (b"TRACE /health HTTP/1.1\r\nHost: localhost\r\n\r\n", {405}),
        (b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", {404}),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 403}),
    ],
)  # fmt: skip
def test_odd_bytes_have_a_plain_answer(served: Served, sent: bytes, statuses: set[int]) -> None:
    answer = answer_to(served, sent)
    found = re.match(rb"HTTP/1\.1 (\d{3}) ", answer)
    # A connection whose bytes are no HTTP may also just end.
    assert (int(found[1]) in statuses) if found else (400 in statuses and not answer)
    assert b"access-control-allow-origin" not in answer.lower()
    assert served.get("/health").status_code == 200


def test_a_body_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_BODY_SECONDS", 0.2)
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b""}

    async def trickle() -> Any:
        await exchange.asyncio.sleep(0.05)
        return {"type": "http.request", "body": b" ", "more_body": True}

    with pytest.raises(ApiError, match="the body took longer than") as refused:
        exchange.asyncio.run(body_of(Request(scope, trickle)))
    assert refused.value.status == 408


def test_keys_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    honest = hmac.compare_digest

    def recorded(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return honest(one, other)

    monkeypatch.setattr(hmac, "compare_digest", recorded)
    guard = Guard(lambda *_: None, hosts=(), key="secret", most_bytes=1)  # type: ignore[arg-type]
    scope: dict[str, Any] = {"path": "/v1/models", "method": "GET", "headers": []}
    for given, passes in (({"x-api-key": "secret"}, True), ({"authorization": "Bearer s"}, False)):
        compared.clear()
        try:
            guard._check(scope, given, ())
            assert passes
        except ApiError as error:
            assert error.status == 401 and not passes
        # All that was given, whether or not the first is right.
        assert [other for _, other in compared] == [b"secret"] * 2


def test_no_answer_has_a_path_of_this_machine(served: Served) -> None:
    answers = [
        served.get(path)
        for path in (
            "/", "/health", "/metrics", "/props", "/slots", "/models", "/v1/models",
            "/v1/models/nothing", "/nothing", "/v1/responses/nothing",
        )
    ]  # fmt: skip
    for path in ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"):
        for body in (
            [],
            {},
            {"model": "/etc/passwd", "prompt": "x"},
            {"prompt": "x", "max_tokens": 2, "messages": [{"role": "user", "content": "x"}]},
            {"prompt": "x", "input": "x", "grammar": "root ::= (", "messages": []},
        ):
            answers.append(served.post(path, body))
    folders = {
        str(folder)
        for folder in (
            Path.home(),
            Path.cwd(),
            Path(localspec.__file__).parent,
            registry.bundled().target.parent,
            Path(sys.executable).parent,
            os.environ.get("LOCALSPEC_HOME", Path.home()),
        )
        if len(Path(folder).parts) > 1
    }
    for answer in answers:
        for folder in folders:
            assert folder not in answer.text, (answer.url, folder)


@pytest.mark.parametrize("path", page_paths())
def test_the_page_needs_nothing_from_elsewhere_and_shows_texts_as_texts(
    served: Served, path: str
) -> None:
    answer = served.get(path)
    policy = answer.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'"} <= {*policy}
    # Nothing that is written into a page runs, and no text is taken for HTML.
    assert {"script-src 'self'", "require-trusted-types-for 'script'"} <= {*policy}
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"
    if not path.endswith(".js"):
        assert "://" not in answer.text
    html = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "<style")
    for word in (*html, "@import", "url(", " style=", " onclick=", 'setAttribute("on'):
        assert word not in answer.text


STRINGS = {"type": "string"}
SCHEMAS: dict[str, Any] = {
    "nested counts": {**STRINGS, "pattern": "^(a{1,1000}){1,1000}$"},
    "large count": {**STRINGS, "pattern": "^(abc|abd){50000}$"},
    "exponential": {**STRINGS, "pattern": "^(a|b)*a(a|b){200}$"},
    "backtracking": {**STRINGS, "pattern": "^(x+x+)+y$"},
    "many words": {**STRINGS, "pattern": f"^({'|'.join(f'w{n}' for n in range(10_000))})$"},
    "lookahead": {**STRINGS, "pattern": "^(?!a).*$"},
    "back reference": {**STRINGS, "pattern": r"^(a)\1$"},
    "enumeration": {"enum": [f"v{number}" for number in range(10_000)]},
    "optional members": {"properties": {f"p{n}": STRINGS for n in range(4_000)}},
    "needed members": {
        "properties": {f"p{n}": STRINGS for n in range(2_000)},
        "required": [f"p{n}" for n in range(2_000)],
    },
    "repeated items": {"type": "array", "items": STRINGS, "minItems": 10**7},
    "references": {
        "$defs": {
            **{f"d{n}": {"prefixItems": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)},
            "d40": STRINGS,
        },
        "$ref": "#/$defs/d0",
    },
}


@pytest.mark.slow
def test_schemas_that_are_hard_to_follow_hold_nobody_up(served: Served) -> None:
    gaps, ended = [0.0], threading.Event()

    def steady() -> None:
        """A text beside them, again and again: the longest time without a part of it."""
        body = {"prompt": "ls", "max_tokens": 200, "ignore_eos": True, "stream": True}
        while not ended.is_set():
            url = f"{served.url}/v1/completions"
            with httpx.stream("POST", url, json=body, timeout=PATIENCE) as answer:
                last = None
                for _ in answer.iter_lines():
                    now = monotonic()
                    gaps[0], last = max(gaps[0], now - (last or now)), now

    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(steady)
        try:
            for name, schema in SCHEMAS.items():
                form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
                body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 8}
                began = monotonic()
                answer = served.post("/v1/chat/completions", {**body, "response_format": form})
                assert answer.status_code in (200, 400), (name, answer.text)
                assert monotonic() - began < 60, name
        finally:
            ended.set()
        beside.result()
    assert gaps[0] < 10


@pytest.mark.parametrize("member", ["response_format", "grammar", "tools"])
def test_a_schema_of_many_characters_is_refused(served: Served, member: str) -> None:
    much = {f"p{number}": STRINGS for number in range(MOST_GRAMMAR // 10)}
    schema = {"type": "object", "properties": much}
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
    if member == "response_format":
        form = {"name": "x", "schema": schema}
        body[member] = {"type": "json_schema", "json_schema": form}
    elif member == "grammar":
        body[member] = "root ::= " + " | ".join(['"a"'] * (MOST_GRAMMAR // 4))
    else:
        function = {"name": "f", "parameters": schema}
        body |= {"tools": [{"type": "function", "function": function}], "tool_choice": "required"}
    answer = served.post("/v1/chat/completions", body)
    assert answer.status_code == 400
    assert f"{MOST_GRAMMAR}" in answer.json()["error"]["message"]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
def test_there_is_a_handle_for_every_connection() -> None:
    program = (
        "import json, resource\n"
        "from localspec.server.run import _allow_handles\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))\n"
        "_allow_handles()\n"
        "print(json.dumps([*resource.getrlimit(resource.RLIMIT_NOFILE), hard]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    soft, hard_now, hard = json.loads(done.stdout)
    assert hard_now == hard
    assert soft in (2048, hard)
