"""What the Hub's storage answers in the place of a file, and how long it is asked on."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import hub as fake_hub
from fakes.hub import Hub
from fakes.hub_client import asking, fetch, ranges, why_not
from fakes.hub_repo import Repo
from fakes.pycode import PYCODE

from localspec.errors import HubError
from localspec.hub import transfer
from localspec.hub.cache_layout import cached_files
from localspec.hub.download import FileProgress, bytes_on_disk, download
from localspec.hub.error_messages import reason, unreachable
from localspec.hub.listing import look_up
from localspec.hub.reference import Repository
from localspec.hub.retry import HfHubHTTPError, StorageError, WrongAnswer, httpx, retry_delay

TARGET = PYCODE.target
SIZE = TARGET.stat().st_size
SNAKE = Repository("zoo/snake-GGUF")
BEGUN = 5_000_000
SECRET = "hf_verySecretToken"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub({SNAKE.id: Repo({"snake-Q8_0.gguf": TARGET}, token=SECRET)}) as hub:
        yield hub


@pytest.fixture(autouse=True)
def client(hub: Hub, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    with asking(hub.endpoint, tmp_path) as patch:
        yield patch


def begin() -> None:
    """Some of the model is here."""
    part = cached_files(look_up(SNAKE))[0].partial_path
    part.parent.mkdir(parents=True)
    part.write_bytes(TARGET.read_bytes()[:BEGUN])


def asked_of_hub(hub: Hub) -> int:
    """How often the Hub was asked where the file is."""
    return sum("/resolve/" in request.path for request in hub.requests)


def answer_instead(
    client: pytest.MonkeyPatch,
    kind: str,
    body: bytes,
    status: int = 200,
    times: int = 99,
    **headers: str,
) -> None:
    """Let the storage send this before it sends files."""
    right, left = fake_hub._CdnHandler.answer, [None] * times

    def answer(self: Any, token: str | None) -> None:
        if not left:
            right(self, token)
            return
        left.pop()
        self.begin(status, {"Content-Type": kind, **headers}, len(body))
        self._write(body)

    client.setattr(fake_hub._CdnHandler, "answer", answer)


PAGES = [
    pytest.param("text/html; charset=utf-8", b"<html>Blocked</html>", id="short"),
    pytest.param("text/html", b" " * SIZE, id="as long as the file"),
    pytest.param("application/octet-stream", b"Blocked", id="of no type"),
]


@pytest.mark.parametrize(("kind", "page"), PAGES)
def test_a_page_in_the_place_of_a_file_deletes_nothing(
    hub: Hub, client: pytest.MonkeyPatch, kind: str, page: bytes
) -> None:
    begin()
    answer_instead(client, kind, page)
    message = why_not(HubError, SNAKE)
    host = hub.cdn.removeprefix("http://")
    assert f"{host} sends " in message and "instead of the file" in message and "kept" in message
    assert cached_files(look_up(SNAKE))[0].partial_path.read_bytes() == TARGET.read_bytes()[:BEGUN]


@pytest.mark.parametrize(("kind", "page"), PAGES)
def test_a_page_is_not_the_beginning_of_a_file(
    hub: Hub, client: pytest.MonkeyPatch, kind: str, page: bytes
) -> None:
    answer_instead(client, kind, page, times=1)
    assert fetch(SNAKE)[0].read_bytes() == TARGET.read_bytes()
    assert ranges(hub) == [f"bytes=0-{SIZE - 1}"] * 2 and hub.requests[-1].sent == SIZE


def test_a_range_of_another_file_is_not_taken(hub: Hub, client: pytest.MonkeyPatch) -> None:
    begin()
    said = {"Content-Range": f"bytes {BEGUN}-{BEGUN + 6}/{BEGUN + 7}"}
    answer_instead(client, "application/octet-stream", b"another", 206, 1, **said)
    assert fetch(SNAKE)[0].read_bytes() == TARGET.read_bytes()
    assert hub.sent == SIZE - BEGUN + len(b"another")


def test_a_server_that_ignores_ranges_and_is_cut_deletes_nothing(hub: Hub) -> None:
    begin()
    hub.faults.ignore_range = True
    hub.faults.cut_after, hub.faults.cuts = 3_000_000, 99
    assert "kept" in why_not(HubError, SNAKE)
    assert bytes_on_disk(look_up(SNAKE)) == BEGUN


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 416])
def test_a_refusal_of_the_storage_is_cured_by_a_fresh_address(hub: Hub, status: int) -> None:
    hub.faults.statuses["cdn"] = [status]
    told: list[FileProgress] = []
    (path,) = download([look_up(SNAKE)], told.append, lambda: False)
    assert path.read_bytes() == TARGET.read_bytes() and asked_of_hub(hub) == 2
    (waiting,) = (each.reason for each in told if each.state == "waiting")
    assert waiting.startswith(
        f"{hub.cdn.removeprefix('http://')} refuses the file ({status}); asked"
    )


@pytest.mark.parametrize("token", [None, SECRET])
@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_of_the_storage_is_not_the_hubs(
    hub: Hub, client: pytest.MonkeyPatch, status: int, token: str | None
) -> None:
    if token:
        client.setenv("HF_TOKEN", token)
    begin()
    hub.faults.statuses["cdn"] = [status] * 99
    message = why_not(HubError, SNAKE)
    host = hub.cdn.removeprefix("http://")
    assert message.startswith(f"the storage {host} refuses the file ({status})")
    assert "no token changes that" in message and "kept" in message and asked_of_hub(hub) == 6
    assert bytes_on_disk(look_up(SNAKE)) == BEGUN


def refusal(status: int, kind: type[HfHubHTTPError] = HfHubHTTPError, **headers: str) -> Exception:
    request = httpx.Request("GET", "https://storage.test/file")
    response = httpx.Response(status, headers=headers, request=request)
    return kind(str(status), response=response)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_download_that_has_begun_waits_for_a_busy_server(
    client: pytest.MonkeyPatch, status: int
) -> None:
    """As it waits for the network, and as long as the Hub asks for after too many requests."""
    client.setattr("localspec.hub.retry.FIRST_DELAY", 0.5)
    for kind in (HfHubHTTPError, StorageError):
        busy = refusal(status, kind)
        assert retry_delay(busy, 6) is None and retry_delay(busy, 40, 800.0) == 30
        assert retry_delay(busy, 40, 901.0) is None
        later = refusal(status, kind, **{"Retry-After": "290"})
        assert retry_delay(later, 1) is None and retry_delay(later, 1, 1.0) == 290
        assert retry_delay(refusal(status, kind, **{"Retry-After": "301"}), 1, 1.0) is None


def test_what_is_asked_again_a_few_times_or_never() -> None:
    for error in (refusal(403, StorageError), WrongAnswer("less")):
        assert retry_delay(error, 5, 1.0) is not None and retry_delay(error, 6, 1.0) is None
    assert retry_delay(refusal(403), 1, 1.0) is None


def test_the_storage_without_an_address_is_named_while_it_is_waited_for() -> None:
    assert reason(unreachable("storage.test", "no address")).endswith("connection to storage.test")


@pytest.mark.parametrize(
    ("location", "authorised"), [("https://hub.test/x", True), ("http://hub.test/x", False)]
)
def test_a_token_stays_with_the_hubs_own_scheme(
    client: pytest.MonkeyPatch, location: str, authorised: bool
) -> None:
    client.setenv("HF_TOKEN", SECRET)
    model, sent = look_up(SNAKE), list[dict[str, str]]()
    real = transfer.get_hf_file_metadata
    about = real(transfer.hf_hub_url(SNAKE.id, "snake-Q8_0.gguf"), token=SECRET)

    class Session:
        def stream(self, *_: str, headers: dict[str, str], **_options: Any) -> Any:
            sent.append(headers)
            raise httpx.UnsupportedProtocol("this is far enough")

    def metadata(*_: Any, **_options: Any) -> Any:
        return replace(about, location=location)

    client.setattr(transfer, "hf_hub_url", lambda *_, **_options: "https://hub.test/zoo/file")
    client.setattr(transfer, "get_hf_file_metadata", metadata)
    client.setattr(transfer, "get_session", Session)
    client.setattr(transfer, "require_answer", lambda _: None)
    why_not(HubError, model)
    assert [("authorization" in headers) for headers in sent] == [authorised]
