"""Networks that people have: silent servers, mirrors, proxies, and certificates of their own."""

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from fakes import hub as fake_hub
from fakes.hub import Hub
from fakes.hub_client import asking, fetch, ranges, why_not
from fakes.hub_repo import Repo
from fakes.pycode import PYCODE
from huggingface_hub import close_session, constants

from localspec.errors import HubError
from localspec.hub.download import FileProgress, download
from localspec.hub.listing import look_up
from localspec.hub.reference import Repository
from localspec.hub.retry import httpx, retry_delay
from localspec.utils.progress import watched

TARGET = PYCODE.target
SIZE = TARGET.stat().st_size
SNAKE = Repository("zoo/snake-GGUF")
BEGUN = 5_000_000


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub({SNAKE.id: Repo({"snake-Q8_0.gguf": TARGET})}) as hub:
        yield hub


@pytest.fixture(autouse=True)
def client(hub: Hub, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    with asking(hub.endpoint, tmp_path) as patch:
        yield patch


@contextmanager
def serving(answer: bytes = b"") -> Iterator[str]:
    """A server that takes every connection and sends this answer, or nothing; its address."""
    taken, over = list[socket.socket](), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)

        def take() -> None:
            while not over.is_set():
                with suppress(TimeoutError):
                    taken.append(server.accept()[0])
                    if answer:
                        taken[-1].recv(65536)
                        taken[-1].sendall(answer)

        thread = threading.Thread(target=take)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            over.set()
            thread.join()
            for each in taken:
                each.close()


def test_a_storage_that_sends_nothing_is_told_while_it_is_asked_on(
    hub: Hub, client: pytest.MonkeyPatch
) -> None:
    client.setattr("localspec.hub.download.SILENCE", 0.3)
    client.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 2)
    model, told = look_up(SNAKE), list[FileProgress]()
    with serving() as hub.cdn:

        def hear(progress: FileProgress) -> None:
            told.append(progress)
            if progress.state == "waiting":
                hub.cdn = cdn  # which answers from now on

        cdn = hub._servers["cdn"].address
        (path,) = download([model], hear, lambda: False)
    assert path.read_bytes() == TARGET.read_bytes()
    assert [each.state for each in told][:4] == ["asking", "silent", "waiting", "asking"]
    assert told[1].reason == "nothing has come from the server for 0 s"
    assert "127.0.0.1" in told[2].reason and "does not answer; asked again in" in told[2].reason


def test_a_storage_that_falls_silent_is_told_once(hub: Hub, client: pytest.MonkeyPatch) -> None:
    client.setattr("localspec.hub.download.SILENCE", 0.3)
    hub.faults.bytes_per_second = 10_000  # a chunk, and then nothing for more than a second
    model, told = look_up(SNAKE), list[FileProgress]()
    with pytest.raises(KeyboardInterrupt):
        download([model], told.append, lambda: len(told) > 4)
    states = [each.state for each in told]
    assert states[:5] == ["asking", "fetching", "silent", "fetching", "silent"]


def test_a_storage_that_stays_silent_is_told_once(hub: Hub, client: pytest.MonkeyPatch) -> None:
    client.setattr("localspec.hub.download.SILENCE", 0.3)
    client.setattr("localspec.hub.retry.MAX_RETRIES", 2)
    client.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 1)
    model, told = look_up(SNAKE), list[FileProgress]()
    with serving() as hub.cdn, pytest.raises(HubError, match="does not answer; try again later"):
        download([model], told.append, lambda: False)
    silent = [each.reason for each in told if each.state == "silent"]
    assert silent == ["nothing has come from the server for 0 s", "", ""]


def test_a_hub_that_sends_nothing_is_told(client: pytest.MonkeyPatch) -> None:
    client.setattr("localspec.hub.reachability.SILENCE", 0.2)
    client.setattr("localspec.hub.retry.MAX_RETRIES", 1)
    client.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 1)
    told: list[str] = []
    with serving() as address, watched(lambda action, _: told.append(action)):
        client.setattr(constants, "ENDPOINT", address)
        client.setenv("HF_ENDPOINT", address)
        assert "does not answer" in why_not(HubError, SNAKE)
    host = address.removeprefix("http://")
    silent, again = f"nothing has come from {host} for 0 s", f"{host} does not answer; asked again"
    assert [told[0], told[1].partition(" in ")[0], told[2]] == [silent, again, silent]


def test_a_hub_that_got_too_many_requests_is_asked_later(hub: Hub) -> None:
    hub.faults.statuses["hub"], hub.faults.retry_after = [429], 1
    told: list[str] = []
    with watched(lambda action, _: told.append(action)):
        fetch(SNAKE)
    host = hub.endpoint.removeprefix("http://")
    assert told == [f"{host} got too many requests (429); asked again in 1 s"]


def test_a_storage_that_got_too_many_requests_says_so(hub: Hub) -> None:
    hub.faults.statuses["cdn"], hub.faults.retry_after = [429], 1
    told: list[FileProgress] = []
    download([look_up(SNAKE)], told.append, lambda: False)
    (waiting,) = (each.reason for each in told if each.state == "waiting")
    assert waiting.endswith("got too many requests (429); asked again in 1 s")


@pytest.mark.parametrize("says", ["", '"0123456789abcdef0123456789abcdef"'])
def test_a_mirror_that_does_not_say_the_hash_goes_on_where_it_stopped(
    hub: Hub, client: pytest.MonkeyPatch, says: str
) -> None:
    right = fake_hub._HubHandler.begin

    def begin(self: Any, status: int, headers: dict[str, str], size: int) -> None:
        if status == 302:
            headers |= {"X-Linked-Etag": "", "X-Linked-Size": "", "ETag": says}
        right(self, status, headers, size)

    client.setattr(fake_hub._HubHandler, "begin", begin)
    hub.faults.cut_after, hub.faults.cuts = 3_000_000, 99
    (path,) = fetch(SNAKE)
    assert path.read_bytes() == TARGET.read_bytes()
    assert hub.sent == SIZE and len(ranges(hub)) == 3


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_mirror_below_a_path_that_redirects(
    hub: Hub, client: pytest.MonkeyPatch, tmp_path: Path, status: int
) -> None:
    """First within itself, without its host in front, then to a storage of another host."""
    right = fake_hub._HubHandler.answer

    def answer(self: Any, token: str | None) -> None:
        if not self.path.startswith("/hf/"):
            raise fake_hub.Refusal(404)
        self.path = self.path.removeprefix("/hf")
        if "/resolve/" in self.path and not self.path.startswith("/moved"):
            self.begin(status, {"Location": f"/hf/moved{self.path}"}, 0)
            return
        self.path = self.path.removeprefix("/moved")
        right(self, token)

    client.setattr(fake_hub._HubHandler, "answer", answer)
    with asking(f"{hub.endpoint}/hf", tmp_path):
        assert fetch(SNAKE)[0].read_bytes() == TARGET.read_bytes()


@pytest.mark.parametrize("status", [b"403 Forbidden", b"407 Proxy Authentication Required"])
def test_a_proxy_that_refuses_is_told_at_once(client: pytest.MonkeyPatch, status: bytes) -> None:
    client.setattr(constants, "ENDPOINT", "https://hub.test")
    client.setenv("HF_ENDPOINT", "https://hub.test")
    with serving(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n") as address:
        client.setenv("HTTPS_PROXY", address)
        message = why_not(HubError, SNAKE)
    assert "cannot reach hub.test (the proxy in use does not connect to it)" in message
    assert "HTTPS_PROXY" in message


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes the certificate")
def test_a_certificate_that_is_not_trusted(client: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As that of a company's proxy, which reads what goes through it."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    about = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-nodes"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", *about, *files]
    subprocess.run(command, check=True, capture_output=True)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "HTTPS_PROXY", "https_proxy"):
        client.delenv(name, raising=False)
    with Hub({SNAKE.id: Repo({"snake-Q8_0.gguf": TARGET})}) as hub:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server = hub._servers["hub"]
        server.socket = context.wrap_socket(server.socket, server_side=True)
        address = hub.endpoint.replace("http://127.0.0.1", "https://localhost")
        with asking(address, tmp_path) as own:
            message = why_not(HubError, SNAKE)
            assert f"certificate of {address.removeprefix('https://')} is not trusted" in message
            assert "SSL_CERT_FILE" in message and "_ssl.c" not in message
            own.setenv("SSL_CERT_FILE", str(certificate))
            close_session()
            assert fetch(SNAKE)[0].read_bytes() == TARGET.read_bytes()


def test_a_certificate_that_is_not_trusted_is_not_asked_for_again() -> None:
    text = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed (_ssl.c:1006)"
    assert retry_delay(httpx.ConnectError(text), 1, 1.0) is None
