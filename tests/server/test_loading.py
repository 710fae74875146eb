"""What the server answers while its model loads, and what ends it then."""

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.command_line import localspec
from fakes.served import PATIENCE, free_port, health, starting, wait_for

from localspec.server.address import Address
from localspec.server.page import page_paths
from localspec.server.run import listen

# A server whose model never finishes loading.
ENDLESS = """
import sys, time
from pathlib import Path
from localspec.server.address import Address
from localspec.server.catalog import ServedModel
from localspec.server.run import listen, serve
from localspec.utils.progress import report_progress

def load():
    report_progress("loading big.gguf", 0.42)
    time.sleep(600)

address = Address(port=int(sys.argv[1]), key=sys.argv[2] or None)
models = [ServedModel(["m"], Path("m"), load)]
ignore = lambda *_: None
serve(models, address, listen(address), ready=print, signalled=print, progress=ignore)
"""


@contextmanager
def loading(key: str = "") -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """The URL and the process of a server that loads for ever."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with starting("-c", ENDLESS, str(port), key) as process:
        wait_for(lambda: "big.gguf" in health(url))
        yield url, process


def test_it_says_how_far_it_is() -> None:
    with loading() as (url, _):
        for path in ("/health", "/v1/health"):
            answer = httpx.get(url + path)
            assert answer.status_code == 503
            assert int(answer.headers["Retry-After"]) > 0
            found = answer.json()
            assert (found["status"], found["progress"]) == ("loading model", 0.42)
            assert found["action"] == "loading big.gguf"
            # As llama-server says it.
            assert found["error"]["code"] == 503
            assert found["error"]["type"] == "unavailable_error"
        page = httpx.get(url)
        assert page.status_code == 200
        assert "<title>localspec</title>" in page.text
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]
        for path in page_paths():
            assert httpx.get(url + path).status_code == 200


def test_every_other_request_is_told_to_come_again() -> None:
    paths = [
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/completions"),
        ("POST", "/v1/responses"),
        ("POST", "/infill"),
        ("GET", "/v1/models"),
        ("GET", "/slots"),
        ("GET", "/nothing/here"),
        ("DELETE", "/"),
    ]
    with loading() as (url, _), httpx.Client(base_url=url) as client:
        for method, path in paths:
            answer = client.request(method, path, json={"model": "x"})
            assert answer.status_code == 503
            assert int(answer.headers["Retry-After"]) > 0
            error = answer.json()["error"]
            assert "not ready yet (loading big.gguf, 42%)" in error["message"]
            assert error["code"] == "loading_model"
        claude = client.post("/v1/messages", json={"max_tokens": 1}).json()
        assert claude["type"] == "error"
        assert claude["error"]["type"] == "overloaded_error"


def test_the_guard_stands_before_it() -> None:
    with loading(key="secret") as (url, _):
        assert httpx.get(f"{url}/v1/models").status_code == 401
        assert {httpx.get(url + path).status_code for path in page_paths()} == {200}
        assert httpx.get(f"{url}/static/other.js").status_code == 401
        given = {"x-api-key": "secret"}
        assert httpx.get(f"{url}/v1/models", headers=given).status_code == 503
        assert httpx.get(f"{url}/health", headers={"Host": "evil.example"}).status_code == 403


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_it_at_once(sent: int, code: int) -> None:
    with loading() as (_, process):
        process.send_signal(sent)
        began = time.monotonic()
        assert process.wait(PATIENCE) == code
        assert time.monotonic() - began < 10
        assert process.stderr and process.stderr.read() == ""


def test_a_model_that_cannot_be_loaded(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF\x03\0\0\0nothing of any use")
    done = localspec("serve", str(broken), "--port", str(free_port()))
    assert done.code == 5
    assert done.err.count("\n") == 1
    assert "broken.gguf" in done.err


def test_a_taken_port_is_told_before_anything_is_loaded(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        # A model that does not exist is the next thing to be told.
        port = str(taken.getsockname()[1])
        done = localspec("serve", "nothere.gguf", "--port", port)
    assert done.code == 2
    assert "has it: take" in done.err


def test_two_cannot_take_a_port_at_the_same_time() -> None:
    """Also before either has answered anything."""
    port = free_port()
    code = (
        "import sys\n"
        "from localspec.server.run import Address, listen\n"
        "first = listen(Address(port=int(sys.argv[1])))\n"
        "listen(Address(port=int(sys.argv[1])))\n"
    )
    with starting("-c", code, str(port)) as process:
        assert process.wait(PATIENCE) == 1
        assert process.stderr and "has it: take" in process.stderr.read()


def test_windows_lets_nobody_take_a_port_that_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """There SO_REUSEADDR allows just that."""
    monkeypatch.setattr("localspec.server.run.sys.platform", "win32")
    with listen(Address(port=free_port())) as opened:
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) == 0


def test_then_it_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing measured before, loading takes a while."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    seen: list[Any] = []

    def ready() -> bool:
        found = health(url)
        if found and (not seen or found != seen[-1]):
            seen.append(found)
        return found == '{"status":"ok"}'

    command = ("-m", "localspec", "serve", "--threads", "1", "--ctx", "256", "--parallel", "1")
    with starting(*command, "--port", str(port)) as process:
        wait_for(lambda: ready() or process.poll() is not None)
        assert process.poll() is None
        answer = httpx.post(
            f"{url}/v1/completions", json={"prompt": "ls", "max_tokens": 2}, timeout=PATIENCE
        )
        assert answer.status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert '"status":"loading model"' in seen[0]
