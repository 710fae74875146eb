"""A Hub that drops packets, refuses, or has no address: what is said, and how soon."""

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from fakes.hub import Hub
from fakes.hub_client import asking, fetch, why_not
from fakes.hub_repo import Repo
from fakes.pycode import PYCODE
from huggingface_hub import constants, get_session, set_client_factory
from huggingface_hub.utils._http import default_client_factory

from localspec.errors import HubError
from localspec.hub import reachability
from localspec.hub.listing import look_up
from localspec.hub.reachability import require_answer
from localspec.hub.reference import Repository

SNAKE = Repository("zoo/snake-GGUF")
SILENT, REFUSING, HERE = "127.0.0.2", "127.0.0.3", "127.0.0.1"
IPV6 = "::1"
linux = pytest.mark.skipif(sys.platform != "linux", reason="all of 127.0.0.0/8 is this machine")


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub({SNAKE.id: Repo({"snake-Q4_0.gguf": PYCODE[1]})}) as hub:
        yield hub


@pytest.fixture(autouse=True)
def client(hub: Hub, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    with asking(hub.endpoint.replace(HERE, "blocked.test"), tmp_path) as patch:
        patch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 1)
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            patch.delenv(name.lower(), raising=False)
            patch.delenv(name, raising=False)
        yield patch


@pytest.fixture
def silent(hub: Hub) -> Iterator[None]:
    """Nothing answers at SILENT: its queue is full, so further packets are dropped."""
    address = SILENT, int(hub.endpoint.rpartition(":")[2])
    with ExitStack() as opened:
        opened.enter_context(socket.create_server(address, backlog=0))
        for _ in range(3):
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        yield


def resolving(patch: pytest.MonkeyPatch, *hosts: str) -> None:
    """blocked.test has these addresses."""
    real = socket.getaddrinfo

    def resolve(host: Any, *rest: Any, **options: Any) -> Any:
        found = hosts if host in ("blocked.test", b"blocked.test") else [host]
        return [each for name in found for each in real(name, *rest, **options)]

    patch.setattr(socket, "getaddrinfo", resolve)


@linux
@pytest.mark.usefixtures("silent")
def test_dropped_packets_are_told_after_one_time_out(client: pytest.MonkeyPatch, hub: Hub) -> None:
    """And not after one for each address, and one for each request."""
    resolving(client, *[SILENT] * 8)
    began = monotonic()
    message = why_not(HubError, SNAKE)
    assert monotonic() - began < 6  # one by one, eight take eight seconds
    assert "cannot reach blocked.test" in message and "it does not answer" in message
    assert all(way in message for way in ("HF_ENDPOINT", "mirror", "PROXY", "HF_HUB_OFFLINE=1"))
    assert not hub.requests


@linux
@pytest.mark.usefixtures("silent")
def test_one_address_that_answers_is_enough(client: pytest.MonkeyPatch) -> None:
    resolving(client, SILENT, REFUSING, HERE)
    require_answer()


@pytest.fixture
def silent_ipv6(hub: Hub, client: pytest.MonkeyPatch) -> Iterator[None]:
    """The same at ::1, and what was known of IPv6 is forgotten."""
    client.setattr(reachability, "_only_ipv4", False)
    address = IPV6, int(hub.endpoint.rpartition(":")[2])
    with ExitStack() as opened:
        try:
            server = socket.create_server(address, family=socket.AF_INET6, backlog=0)
        except OSError:
            pytest.skip("this machine has no IPv6")
        opened.enter_context(server)
        for _ in range(3):
            waiting = opened.enter_context(socket.socket(socket.AF_INET6))
            waiting.setblocking(False)
            waiting.connect_ex(address)
        yield
    set_client_factory(default_client_factory)


@linux
@pytest.mark.usefixtures("silent_ipv6")
def test_addresses_of_ipv6_that_drop_packets_are_left_out(client: pytest.MonkeyPatch) -> None:
    """The HTTP client would wait for each of them, with every new connection."""
    resolving(client, *[IPV6] * 4, HERE)
    client.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 3)
    began = monotonic()
    assert fetch(SNAKE)[0].read_bytes() == PYCODE[1].read_bytes()
    assert monotonic() - began < 3


@linux
def test_ipv6_that_answers_stays(client: pytest.MonkeyPatch, hub: Hub) -> None:
    client.setattr(reachability, "_only_ipv4", False)
    port = int(hub.endpoint.rpartition(":")[2])
    with ExitStack() as opened:
        try:
            server = socket.create_server((IPV6, port), family=socket.AF_INET6)
        except OSError:
            pytest.skip("this machine has no IPv6")
        opened.enter_context(server)
        resolving(client, HERE, IPV6)
        require_answer()
    assert not reachability._only_ipv4


@linux
@pytest.mark.usefixtures("silent_ipv6")
def test_a_storage_changes_nothing_for_those_who_use_the_client(
    client: pytest.MonkeyPatch, hub: Hub
) -> None:
    resolving(client, IPV6, HERE)
    before = get_session()
    require_answer(hub.endpoint.replace(HERE, "blocked.test"))
    assert get_session() is before and not before.is_closed
    require_answer()
    assert get_session() is not before


@linux
@pytest.mark.usefixtures("silent")
def test_a_refusal_beside_silence_is_no_answer(client: pytest.MonkeyPatch) -> None:
    resolving(client, REFUSING, SILENT)
    assert "it does not answer" in why_not(HubError, SNAKE)


@linux
def test_a_refusal_is_told_in_its_own_words(client: pytest.MonkeyPatch) -> None:
    resolving(client, REFUSING, REFUSING)
    assert "Connection refused" in why_not(HubError, SNAKE)


def test_a_name_without_an_address(client: pytest.MonkeyPatch) -> None:
    def resolve(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    client.setattr(socket, "getaddrinfo", resolve)
    message = why_not(HubError, SNAKE)
    assert "cannot reach blocked.test" in message and "Name or service not known" in message


@linux
@pytest.mark.usefixtures("silent")
def test_a_proxy_is_asked_instead(client: pytest.MonkeyPatch, hub: Hub) -> None:
    resolving(client, SILENT)
    client.setenv("http_proxy", "http://127.0.0.1:9")
    require_answer()
    client.setenv("no_proxy", "blocked.test")
    with pytest.raises(HubError, match="it does not answer"):
        require_answer()


@pytest.mark.slow
@linux
@pytest.mark.usefixtures("silent")
def test_a_storage_that_drops_packets_is_told_as_soon(client: pytest.MonkeyPatch, hub: Hub) -> None:
    resolving(client, HERE)
    port = hub.endpoint.rpartition(":")[2]
    model, hub.cdn = look_up(SNAKE), f"http://{SILENT}:{port}"
    began = monotonic()
    assert f"cannot reach {SILENT}:{port} (it does not answer)" in why_not(HubError, model)
    assert monotonic() - began < 15  # six times ten seconds without the check


@linux
@pytest.mark.parametrize(("asked", "seconds"), [(None, 5.0), ("10", 10.0)])
def test_the_time_that_a_user_has_set_is_kept(
    client: pytest.MonkeyPatch, asked: str | None, seconds: float
) -> None:
    resolving(client, HERE)
    waited: list[float] = []
    client.setattr(reachability, "_all_silent", lambda _, seconds: bool(waited.append(seconds)))
    client.setattr(constants, "HF_HUB_ETAG_TIMEOUT", constants.DEFAULT_ETAG_TIMEOUT)
    client.delenv("HF_HUB_ETAG_TIMEOUT", raising=False)
    if asked:
        client.setenv("HF_HUB_ETAG_TIMEOUT", asked)
    require_answer()
    assert waited == [seconds]


def test_a_hub_that_answers_is_asked(client: pytest.MonkeyPatch) -> None:
    resolving(client, HERE)
    assert look_up(SNAKE).names.quant == "Q4_0"
