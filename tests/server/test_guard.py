"""The guard: hosts, pages and keys, without a model."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from localspec.server.guard import Guard

PAGE = "https://page.example"


def guarded(hosts: Sequence[str] = ("127.0.0.1", "localhost", "::1"), **options: Any) -> TestClient:
    """A client of a guarded app that answers `fine`."""

    async def fine(_request: Request) -> PlainTextResponse:
        return PlainTextResponse("fine")

    app = Starlette(routes=[Route("/v1/models", fine, methods=["GET", "POST"])])
    guard = Guard(app, **{"hosts": hosts, "most_bytes": 100, **options})
    return TestClient(guard, base_url="http://localhost:8080")


@pytest.fixture
def plain() -> Iterator[TestClient]:
    yield guarded()


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "LOCALHOST:8080", "[::1]:8080", "[::1]", "localhost:"]
)
def test_its_own_names(plain: TestClient, host: str) -> None:
    assert plain.get("/v1/models", headers={"Host": host}).status_code == 200


def test_a_refusal_is_in_the_log(plain: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "localspec.server"):
        plain.get("/v1/models%1b%5b2J", headers={"Host": "evil.example"})
        plain.get("/v1/models")
    [line] = caplog.messages
    assert line.startswith("GET /v1/models?[2J: 403, ") and "evil.example" in line


@pytest.mark.parametrize(
    "host",
    ["", "localhost.", "evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost@e",
     "evil.example:127.0.0.1", "[::1", "[::2]", "127.0.0.1:8080.evil.example:80", "0.0.0.0"],
)  # fmt: skip
def test_other_names(plain: TestClient, host: str) -> None:
    answer = plain.get("/v1/models", headers={"Host": host})
    # Of brackets that do not close, the name is what follows.
    assert answer.status_code == (200 if host == "[::1" else 403)


def test_a_request_without_a_host(plain: TestClient) -> None:
    request = plain.build_request("GET", "/v1/models")
    request.headers["Host"] = ""
    for answer in (plain.send(request), plain.get("/v1/models", headers={"Host": ":8080"})):
        assert answer.status_code == 403
        assert "no Host header, which this server checks" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "origin",
    ["null", "http://[", "http://[::1", PAGE, "http://localhost", "http://localhost:8081",
     "http://localhost:8080.evil.example", "http://evil.example#localhost:8080",
     "http://localhost:8080@evil.example", "localhost:8080", "://", "file://"],
)  # fmt: skip
def test_pages_elsewhere(plain: TestClient, origin: str) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        answer = plain.request(method, "/v1/models", headers={"Origin": origin})
        assert answer.status_code == 403, origin
        assert "access-control-allow-origin" not in answer.headers


def test_its_own_page(plain: TestClient) -> None:
    assert plain.get("/v1/models", headers={"Origin": "http://localhost:8080"}).status_code == 200


def test_a_named_page_may_read_errors_and_send_its_clients_headers() -> None:
    client = guarded(origins=[PAGE + "/"], key="secret")
    refused = client.get("/v1/models", headers={"Origin": PAGE})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == PAGE
    wanted = "authorization,x-stainless-lang"
    asked = {"Origin": PAGE, "Access-Control-Request-Headers": wanted}
    preflight = client.options("/v1/models", headers=asked)
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-headers"] == wanted
    frame = client.options("/v1/models", headers={"Origin": "null"})
    assert frame.status_code == 403
    # Any page may hold such a frame: no advice to let them all in.
    assert "--cors" not in frame.text and "pages without an origin" in frame.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"x-api-key": "secreT"}, 401),
        ({"Authorization": "Basic secret"}, 401),
        ({"Authorization": "Bearer secre"}, 401),
        ({"x-api-key": "s\u00e9cret"}, 401),
        ({"Authorization": "bearer  secret "}, 200),
        ({"x-api-key": "secret"}, 200),
        ({"x-api-key": "of another service", "Authorization": "Bearer secret"}, 200),
    ],
    ids=["none", "wrong", "basic", "short", "accent", "bearer", "header", "both"],
)
def test_keys(headers: dict[str, str], status: int) -> None:
    encoded = {name: value.encode("latin-1") for name, value in headers.items()}
    answer = guarded(key="secret").get("/v1/models", headers=encoded)
    assert answer.status_code == status
    assert answer.headers.get("www-authenticate") == ("Bearer" if status == 401 else None)


def test_hosts_may_be_named_with_a_port() -> None:
    client = guarded(hosts=["Box.example:9000"])
    assert client.get("/v1/models", headers={"Host": "box.example:9000"}).status_code == 200
