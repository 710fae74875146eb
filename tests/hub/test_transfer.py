"""Transfers that are interrupted, and continued where they stopped, in this process or another."""

import hashlib
import os
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from fakes import hub as fake_hub
from fakes import hub_repo
from fakes.hub import Hub
from fakes.hub_client import Child, asking, fetch, ranges, wait_for, why_not
from fakes.hub_repo import File, Repo
from fakes.pycode import PYCODE
from huggingface_hub import constants, hf_hub_download, scan_cache_dir

from localspec.errors import HubError, LocalspecError
from localspec.hub import store, transfer
from localspec.hub.cache_layout import cached_files
from localspec.hub.download import bytes_on_disk
from localspec.hub.error_messages import unreachable
from localspec.hub.listing import RemoteModel, look_up
from localspec.hub.reference import Repository
from localspec.hub.retry import WrongAnswer, httpx, retry_delay

posix = pytest.mark.skipif(os.name != "posix", reason="signals and limits of POSIX")
TARGET, DRAFTER = PYCODE
SIZE = TARGET.stat().st_size
SNAKE = Repository("zoo/snake-GGUF")
WORM = Repository("zoo/worm-GGUF")
# Bytes that an earlier run fetched.
BEGUN = 5_000_000
LIMIT_FILES = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub({SNAKE.id: Repo({"low/snake-Q8_0.gguf": TARGET})}) as hub:
        yield hub


@pytest.fixture(autouse=True)
def client(hub: Hub, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    with asking(hub.endpoint, tmp_path) as patch:
        yield patch


@pytest.fixture
def child(hub: Hub, tmp_path: Path) -> Child:
    return Child(hub, tmp_path)


def begun() -> RemoteModel:
    """The model, some of which is here."""
    model = look_up(SNAKE)
    part = cached_files(model)[0].partial_path
    part.parent.mkdir(parents=True)
    part.write_bytes(TARGET.read_bytes()[:BEGUN])
    assert bytes_on_disk(model) == BEGUN
    return model


@posix
def test_killed_at_half_it_goes_on(hub: Hub, child: Child) -> None:
    model = look_up(SNAKE)
    hub.faults.bytes_per_second = SIZE / 2
    with child.running(SNAKE.id) as process:
        wait_for(lambda: bytes_on_disk(model) >= SIZE // 2)
        process.kill()
        process.wait()
    kept = bytes_on_disk(model)
    assert SIZE // 2 <= kept < SIZE
    cache = scan_cache_dir(constants.HF_HUB_CACHE)
    assert len(cache.incomplete_files) == 1 and not cache.warnings
    hub.faults.bytes_per_second = None
    code, out, err = child(SNAKE.id)
    assert code == 0, err
    assert Path(out.strip()).read_bytes() == TARGET.read_bytes()
    assert ranges(hub)[-1] == f"bytes={kept}-{SIZE - 1}"
    last = [request for request in hub.requests if request.origin == "cdn"][-1]
    assert (last.status, last.sent) == (206, SIZE - kept)
    assert not scan_cache_dir(constants.HF_HUB_CACHE).incomplete_files


def test_a_cut_connection_is_taken_up_again(hub: Hub) -> None:
    hub.faults.cut_after, hub.faults.cuts = 3_000_000, 2
    (path,) = fetch(SNAKE)
    assert path.read_bytes() == TARGET.read_bytes()
    assert hub.sent == SIZE
    assert [told and told.split("-")[0] for told in ranges(hub)] == [
        "bytes=0",
        "bytes=3000000",
        "bytes=6000000",
    ]


def test_it_goes_on_as_long_as_every_attempt_brings_something(hub: Hub) -> None:
    hub.faults.cut_after, hub.faults.cuts = 1_000_000, 99
    assert fetch(SNAKE)[0].read_bytes() == TARGET.read_bytes()
    assert hub.sent == SIZE and len(ranges(hub)) == 9


def test_a_connection_that_is_always_cut_is_given_up(hub: Hub) -> None:
    hub.faults.cut_after, hub.faults.cuts = 0, 99
    assert "breaks again" in why_not(HubError, SNAKE)
    assert 93 <= hub.faults.cuts < 99


def test_cuts_with_ranges_ignored_are_given_up_as_well(hub: Hub) -> None:
    hub.faults.ignore_range = True
    hub.faults.cut_after, hub.faults.cuts = 3_000_000, 99
    assert "breaks again" in why_not(HubError, SNAKE)


def test_a_server_that_ignores_ranges_starts_from_zero(hub: Hub) -> None:
    model = begun()
    hub.faults.ignore_range = True
    assert fetch(model)[0].read_bytes() == TARGET.read_bytes()
    assert ranges(hub)[-1] == f"bytes={BEGUN}-{SIZE - 1}"
    assert hub.sent == SIZE


def test_storage_that_holds_something_else_now_starts_from_zero(
    hub: Hub, client: pytest.MonkeyPatch
) -> None:
    model = begun()
    right = fake_hub._HubHandler.begin

    def other(self: fake_hub._HubHandler, status: int, headers: dict[str, str], size: int) -> None:
        if status == 302:
            headers["X-Linked-Etag"] = f'"{"0" * 64}"'
        right(self, status, headers, size)

    client.setattr(fake_hub._HubHandler, "begin", other)
    assert fetch(model)[0].read_bytes() == TARGET.read_bytes()
    assert ranges(hub)[-1] is None


def test_a_part_that_began_as_something_else_is_fetched_again(hub: Hub) -> None:
    model = begun()
    (cached,) = cached_files(model)
    with cached.partial_path.open("r+b") as part:
        part.write(b"odd")
    assert fetch(model)[0].read_bytes() == TARGET.read_bytes()
    assert hub.sent == SIZE - BEGUN + SIZE


def test_a_part_that_is_too_long_is_fetched_again(hub: Hub) -> None:
    model = begun()
    cached_files(model)[0].partial_path.write_bytes(b"0" * (SIZE + 1))
    assert bytes_on_disk(model) == 0
    assert fetch(model)[0].read_bytes() == TARGET.read_bytes()


def test_another_commit_is_another_file(hub: Hub) -> None:
    begun()
    hub.repos[SNAKE.id].push({"low/snake-Q8_0.gguf": DRAFTER})
    (path,) = fetch(SNAKE)
    assert path.read_bytes() == DRAFTER.read_bytes() and store.find(SNAKE) == path


@pytest.fixture
def without_lfs(client: pytest.MonkeyPatch) -> None:
    """The Hub has all files in git, and sends them itself."""
    git_id = property(
        lambda file: hashlib.sha1(b"blob %d\0" % file.size + file.content).hexdigest()
    )
    client.setattr(hub_repo, "_LFS", ())
    client.setattr(File, "git_id", git_id)


@pytest.mark.usefixtures("without_lfs")
def test_a_file_in_git_is_checked_by_its_git_hash(hub: Hub) -> None:
    hub.faults.wrong_bytes = True
    assert "hash is wrong" in why_not(HubError, SNAKE)
    hub.faults.wrong_bytes = False
    assert fetch(SNAKE)[0].read_bytes() == TARGET.read_bytes()
    assert hf_hub_download(SNAKE.id, "low/snake-Q8_0.gguf", local_files_only=True)


@pytest.mark.usefixtures("without_lfs")
@pytest.mark.parametrize("changed", [False, True])
def test_what_the_hub_sends_itself_goes_on_if_it_is_the_same(
    hub: Hub, client: pytest.MonkeyPatch, changed: bool
) -> None:
    model = begun()
    if changed:
        client.setattr(File, "git_id", "0" * 40)  # its ETag from now on
    assert fetch(model)[0].read_bytes() == TARGET.read_bytes()
    assert hub.requests[-1].status == (200 if changed else 206)
    assert hub.requests[-1].sent == (SIZE if changed else SIZE - BEGUN)


def test_large_files_are_asked_for_in_slices(hub: Hub, client: pytest.MonkeyPatch) -> None:
    client.setattr("localspec.hub.transfer.MAX_REQUEST_BYTES", 3_000_000)
    assert fetch(SNAKE)[0].read_bytes() == TARGET.read_bytes()
    assert ranges(hub) == [
        "bytes=0-2999999",
        "bytes=3000000-5999999",
        f"bytes=6000000-{SIZE - 1}",
    ]


@posix
def test_a_full_disk_keeps_what_was_fetched(hub: Hub, child: Child) -> None:
    code, _, err = child(SNAKE.id, before=LIMIT_FILES)
    assert code == LocalspecError.exit_code
    assert "the disk is full: 7.1 MB more" in err and "kept" in err
    assert bytes_on_disk(look_up(SNAKE)) == 1_000_000
    assert child(SNAKE.id)[0] == 0
    assert ranges(hub)[-1] == f"bytes=1000000-{SIZE - 1}"


def test_a_download_that_has_begun_waits_for_the_network(client: pytest.MonkeyPatch) -> None:
    """For minutes, where a first request is given up after some seconds."""
    client.setattr("localspec.hub.retry.FIRST_DELAY", 0.5)
    away = httpx.ConnectError("no route")
    delays = [retry_delay(away, failures) for failures in range(1, 8)]
    assert delays == [0.5, 1, 2, 4, 8, None, None]
    assert [retry_delay(away, 6, 15.0), retry_delay(away, 40, 800.0)] == [16, 30]
    assert retry_delay(away, 40, 901.0) is None
    # A server that answers wrongly is no network that is away.
    assert retry_delay(WrongAnswer("less"), 6, 1.0) is None


def test_a_proxy_that_refuses_is_asked_once() -> None:
    for refusal in ("407 Proxy Authentication Required", "403 Forbidden"):
        assert retry_delay(httpx.ProxyError(refusal), 1, 1.0) is None
    assert retry_delay(httpx.ProxyError("Connection to 10.0.0.1:443 failed"), 1, 1.0) is not None


def test_a_storage_that_is_away_before_the_first_byte_is_asked_again(
    hub: Hub, client: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(storage: str) -> None:
        asked.append(storage)
        if len(asked) < 3:
            raise unreachable("storage.test", "Temporary failure in name resolution")

    client.setattr(transfer, "require_answer", answer)
    assert fetch(SNAKE)[0].read_bytes() == TARGET.read_bytes()
    assert len(asked) == 3


@pytest.mark.parametrize(
    "away",
    [
        httpx.ConnectError("no route"),
        httpx.ReadTimeout("silence"),
        httpx.ProxyError("503 Service Unavailable"),
        httpx.RemoteProtocolError("Server disconnected without sending a response."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_network_goes_and_comes_back(
    hub: Hub, client: pytest.MonkeyPatch, away: Exception
) -> None:
    real, waited = transfer.get_hf_file_metadata, list[float | None]()

    def metadata(*arguments: Any, **options: Any) -> Any:
        if 1 <= len(waited) < 12:
            raise away
        return real(*arguments, **options)

    hub.faults.cut_after, hub.faults.cuts = 3_000_000, 1
    client.setattr(transfer, "get_hf_file_metadata", metadata)
    client.setattr(transfer, "retry_delay", at_once(waited))
    assert fetch(SNAKE)[0].read_bytes() == TARGET.read_bytes()
    assert len(waited) == 12 and hub.sent == SIZE


def test_a_file_without_a_byte_waits_as_long_as_the_others(
    hub: Hub, client: pytest.MonkeyPatch
) -> None:
    real, waited = transfer.get_hf_file_metadata, list[float | None]()
    hub.repos[WORM.id] = Repo({"worm-Q4_0.gguf": DRAFTER})
    (other,) = cached_files(look_up(SNAKE))

    def metadata(url: str, **options: Any) -> Any:
        if WORM.id in url and len(waited) < 12:
            wait_for(lambda: other.partial_size > 1_000_000 or other.is_complete)
            raise httpx.ConnectError("no route")
        return real(url, **options)

    client.setattr(transfer, "get_hf_file_metadata", metadata)
    client.setattr(transfer, "retry_delay", at_once(waited))
    target, drafter = fetch(SNAKE, WORM)
    assert target.read_bytes() == TARGET.read_bytes()
    assert drafter.read_bytes() == DRAFTER.read_bytes()
    assert len(waited) == 12 and hub.sent == SIZE + DRAFTER.stat().st_size


def test_the_time_without_a_byte_ends_it(hub: Hub, client: pytest.MonkeyPatch) -> None:
    """Also where the server was the first to go, and every request fails in another way."""
    hub.faults.cut_after, hub.faults.cuts = 3_000_000, 1
    errors = cycle([httpx.ProxyError("502"), httpx.RemoteProtocolError("nothing")])
    real, waited = transfer.get_hf_file_metadata, list[float | None]()

    def metadata(*arguments: Any, **options: Any) -> Any:
        if waited:
            raise next(errors)
        return real(*arguments, **options)

    client.setattr(transfer, "get_hf_file_metadata", metadata)
    client.setattr(transfer, "retry_delay", at_once(waited))
    client.setattr("localspec.hub.retry._PATIENCE", 0.3)
    why_not(HubError, SNAKE)
    assert len(waited) > 7 and waited[-1] is None
    assert bytes_on_disk(look_up(SNAKE)) == 3_000_000


def at_once(waited: list[float | None]) -> Any:
    """`retry_delay` without its delays, which are noted."""

    def delay(*asked: Any) -> float | None:
        waited.append(retry_delay(*asked))
        return None if waited[-1] is None else 0.0

    return delay


@pytest.mark.parametrize("variable", ["ALL_PROXY", "HTTPS_PROXY"])
def test_a_proxy_of_an_unknown_kind(variable: str, client: pytest.MonkeyPatch) -> None:
    client.setenv(variable, "socks://127.0.0.1:7890")
    assert f"proxy socks:// in {variable} is of a kind" in why_not(HubError, SNAKE)
