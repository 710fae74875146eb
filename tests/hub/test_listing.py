"""Looking models up at a Hub on this machine: what is there, and why not."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from fakes.hub import Hub
from fakes.hub_client import Child, asking, why_not
from fakes.hub_repo import Repo
from fakes.pycode import PYCODE

from localspec.errors import HubError, ModelNotFoundError
from localspec.hub.listing import BadFileError, look_up
from localspec.hub.reference import Repository

TARGET, DRAFTER = PYCODE
SECRET, STRANGER = "hf_verySecretToken", "hf_somebodyElses"
SNAKE = Repository("zoo/snake-GGUF")
# Ends the program at the first socket that anything opens.
NO_SOCKET = """
import os, sys

def watch(event, arguments):
    if event.startswith("socket."):
        os._exit(99)

sys.addaudithook(watch)
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    snake = {
        "README.md": Path(__file__),
        "mmproj-F16.gguf": DRAFTER,
        "snake-Q8_0.gguf": TARGET,
        "snake-Q4_K_M.gguf": DRAFTER,
        "F16/snake-F16-00001-of-00002.gguf": TARGET,
        "F16/snake-F16-00002-of-00002.gguf": DRAFTER,
    }
    repos = {
        SNAKE.id: Repo(snake),
        "zoo/gated-GGUF": Repo({"gated-Q4_0.gguf": DRAFTER}, gated=True, token=SECRET),
        "zoo/private-GGUF": Repo({"private-Q4_0.gguf": DRAFTER}, private=True, token=SECRET),
        "zoo/escape-GGUF": Repo({"../../../escape-Q4_0.gguf": DRAFTER}),
        "zoo/empty-GGUF": Repo({"empty-Q4_0.gguf": 0}),
    }
    with Hub(repos, strangers=[STRANGER]) as hub:
        yield hub


@pytest.fixture
def client(hub: Hub, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    with asking(hub.endpoint, tmp_path) as patch:
        yield patch


@pytest.mark.usefixtures("client")
def test_a_listing_says_size_hash_and_commit(hub: Hub) -> None:
    found = look_up(SNAKE)
    (file,) = found.files
    assert found.repository == Repository(SNAKE.id, "Q4_K_M")
    assert found.commit == hub.repos[SNAKE.id].main
    assert (file.path, file.size) == ("snake-Q4_K_M.gguf", DRAFTER.stat().st_size)
    assert file.sha256 == hashlib.sha256(DRAFTER.read_bytes()).hexdigest() == file.etag


@pytest.mark.usefixtures("client", "hub")
def test_a_split_model_is_all_its_files() -> None:
    found = look_up(Repository(SNAKE.id, "f16"))
    assert [file.path for file in found.files] == list(found.names.paths)
    assert len(found.files) == 2
    assert found.size == TARGET.stat().st_size + DRAFTER.stat().st_size


@pytest.mark.usefixtures("client", "hub")
@pytest.mark.parametrize("written", ["SNAKE-q8_0.gguf", "snake-Q8_0.GGUF"])
def test_a_file_written_in_other_capitals_has_its_own_name(written: str) -> None:
    found = look_up(Repository(SNAKE.id, written))
    assert found.repository.quant == found.files[0].path == "snake-Q8_0.gguf"


@pytest.mark.usefixtures("client", "hub")
def test_a_quantisation_that_is_not_there_lists_what_is() -> None:
    message = why_not(ModelNotFoundError, Repository(SNAKE.id, "Q5_K_M"))
    assert all(label in message for label in ("no Q5_K_M", "Q8_0", "Q4_K_M", "F16"))


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("name", ["zoo/nothing-GGUF", "zoo/private-GGUF"])
@pytest.mark.parametrize("token", [None, STRANGER])
def test_what_is_private_cannot_be_told_from_what_is_not_there(
    client: pytest.MonkeyPatch, name: str, token: str | None
) -> None:
    if token:
        client.setenv("HF_TOKEN", token)
    message = why_not(ModelNotFoundError, Repository(name))
    assert name in message and "private" in message and "hf auth login" in message


@pytest.mark.usefixtures("hub")
def test_a_token_opens_what_is_private(client: pytest.MonkeyPatch) -> None:
    client.setenv("HF_TOKEN", SECRET)
    assert look_up(Repository("zoo/private-GGUF")).names.quant == "Q4_0"


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("token", ["hf_outdated", "hf_öld", "hf_a\tb", "hf_a\x07b"])
def test_a_wrong_token_is_refused_and_not_told(client: pytest.MonkeyPatch, token: str) -> None:
    client.setenv("HF_TOKEN", token)
    message = why_not(HubError, SNAKE)
    assert "token" in message and "HF_TOKEN" in message and token not in message


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize(
    ("status", "said"),
    [(403, "refuses"), (418, "refuses"), (500, "has an error"), (504, "has an error")],
)
def test_a_status_is_told(hub: Hub, status: int, said: str) -> None:
    hub.faults.statuses["hub"] = [status] * 9
    message = why_not(HubError, SNAKE)
    assert str(status) in message and said in message and "127.0.0.1" in message


@pytest.mark.usefixtures("client")
def test_a_long_wait_is_told_and_not_waited(hub: Hub) -> None:
    hub.faults.retry_after = 3000
    hub.faults.statuses["hub"] = [429] * 9
    assert "in 3000 s" in why_not(HubError, SNAKE)
    assert len(hub.faults.statuses["hub"]) == 8


@pytest.mark.usefixtures("client")
def test_trouble_that_passes_is_waited_for(hub: Hub) -> None:
    hub.faults.retry_after = 0
    hub.faults.statuses["hub"] = [503, 429, 500]
    assert look_up(SNAKE).names.quant == "Q4_K_M"


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as closed:
        port = closed.server_port
    with asking(f"http://user:secret@127.0.0.1:{port}", tmp_path):
        message = why_not(HubError, SNAKE)
    assert f"cannot reach 127.0.0.1:{port}" in message
    assert "HF_ENDPOINT" in message and "HF_HUB_OFFLINE" in message and "secret" not in message


@pytest.mark.parametrize("address", ["nonsense", "ftp://hub", "http://a\x07b"])
def test_an_address_that_is_none(tmp_path: Path, address: str) -> None:
    with asking(address, tmp_path):
        message = why_not(HubError, SNAKE)
    assert "cannot be asked" in message and "HF_ENDPOINT" in message


@pytest.mark.parametrize("body", [b"<html>hotel wifi</html>", b"[]", b"{}", b'{"id": "a/b"}'])
def test_a_server_that_is_no_hub(tmp_path: Path, body: bytes) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        with asking(f"http://127.0.0.1:{server.server_port}", tmp_path):
            message = why_not(HubError, SNAKE)
        server.shutdown()
        thread.join()
    assert "does not answer as the Hub does" in message


@pytest.mark.usefixtures("client", "hub")
def test_a_file_may_not_leave_the_cache() -> None:
    message = why_not(BadFileError, Repository("zoo/escape-GGUF"))
    assert "'../../../escape-Q4_0.gguf'" in message


@pytest.mark.usefixtures("client", "hub")
def test_a_file_without_a_size_is_refused() -> None:
    assert "empty-Q4_0.gguf" in why_not(BadFileError, Repository("zoo/empty-GGUF"))


@pytest.mark.usefixtures("client", "hub")
def test_what_is_gated_can_be_looked_up() -> None:
    assert look_up(Repository("zoo/gated-GGUF")).size == DRAFTER.stat().st_size


def test_offline_opens_no_socket(hub: Hub, tmp_path: Path) -> None:
    child = Child(hub, tmp_path)
    # The hook is what ends it where a socket is opened.
    assert child(SNAKE.id, before=NO_SOCKET)[0] == 99
    code, _, err = child(SNAKE.id, before=NO_SOCKET, HF_HUB_OFFLINE="1")
    assert code == HubError.exit_code and "HF_HUB_OFFLINE" in err
