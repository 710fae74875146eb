"""Downloads from a Hub on this machine, and what it refuses."""

import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from fakes.hub import Hub
from fakes.hub_client import Child, asking, fetch, wait_for, why_not
from fakes.hub_repo import Repo
from fakes.pycode import PYCODE
from huggingface_hub import constants, hf_hub_download, scan_cache_dir

from localspec.errors import HubError, LocalspecError, ModelNotFoundError
from localspec.gguf.files import files_of
from localspec.hub import store
from localspec.hub.cache_layout import cached_files, has_changed
from localspec.hub.download import FileProgress, bytes_on_disk, download, require_space
from localspec.hub.listing import look_up
from localspec.hub.reference import Repository

TARGET, DRAFTER = PYCODE
SIZE = TARGET.stat().st_size
SMALL = DRAFTER.stat().st_size
SECRET, STRANGER = "hf_verySecretToken", "hf_somebodyElses"
SNAKE, GATED = Repository("zoo/snake-GGUF"), Repository("zoo/gated-GGUF")
SPLIT, WHALE = Repository("zoo/split-GGUF"), Repository("zoo/whale-GGUF")
LONG = Repository("zoo/long-GGUF")
# What huggingface_hub does itself.
FETCH_BY_HUGGINGFACE = """
import sys
from huggingface_hub import hf_hub_download
print(hf_hub_download(sys.argv[1], sys.argv[2]))
"""
# As on Windows without its developer mode.
NO_LINKS = """
from localspec.hub import cache_layout
cache_layout.are_symlinks_supported = lambda folder: False
"""
LOG_EVERYTHING = """
import logging
logging.basicConfig(level=logging.DEBUG)
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    repos = {
        SNAKE.id: Repo({"low/snake-Q8_0.gguf": TARGET}),
        "zoo/worm-GGUF": Repo({"worm-Q4_0.gguf": DRAFTER}),
        GATED.id: Repo({"gated-Q4_0.gguf": DRAFTER}, gated=True, token=SECRET),
        SPLIT.id: Repo(
            {
                "split-00001-of-00003.gguf": DRAFTER,
                "split-00002-of-00003.gguf": TARGET,
                "split-00003-of-00003.gguf": DRAFTER,  # the same bytes again
            }
        ),
        LONG.id: Repo({f"{'n' * 300}-Q4_0.gguf": DRAFTER}),
        WHALE.id: Repo({"whale-Q4_0.gguf": 10**18}),
    }
    with Hub(repos, strangers=[STRANGER]) as hub:
        yield hub


@pytest.fixture(autouse=True)
def client(hub: Hub, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    with asking(hub.endpoint, tmp_path) as patch:
        yield patch


@pytest.fixture
def child(hub: Hub, tmp_path: Path) -> Child:
    return Child(hub, tmp_path)


def left_in(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if not path.is_dir()]


def test_what_is_fetched_is_huggingface_hubs_own(hub: Hub) -> None:
    (path,) = fetch(SNAKE)
    assert path.read_bytes() == TARGET.read_bytes()
    known = hf_hub_download(SNAKE.id, "low/snake-Q8_0.gguf", local_files_only=True)
    assert path == Path(known) == store.find(SNAKE)
    cache = scan_cache_dir(constants.HF_HUB_CACHE)
    (repo,) = cache.repos
    (revision,) = repo.revisions
    assert not cache.warnings and not cache.incomplete_files
    assert (repo.repo_id, repo.size_on_disk, revision.refs) == (SNAKE.id, SIZE, {"main"})
    assert revision.commit_hash == hub.repos[SNAKE.id].main
    if os.name == "posix":
        assert not path.readlink().is_absolute()


def test_what_is_here_is_not_asked_for_again(hub: Hub) -> None:
    first = fetch(SNAKE)
    assert fetch(SNAKE) == first
    assert hub.sent == SIZE


@pytest.mark.parametrize("linked", [True, False])
def test_a_file_whose_header_is_damaged_is_fetched_again(
    linked: bool, client: pytest.MonkeyPatch, hub: Hub
) -> None:
    client.setattr(constants, "HF_HUB_DISABLE_SYMLINKS", not linked)
    (path,) = fetch(SNAKE)
    with path.open("r+b") as file:
        file.write(bytes(64))
    model = look_up(SNAKE)
    assert bytes_on_disk(model) == 0
    assert fetch(model) == [path]
    assert path.read_bytes() == TARGET.read_bytes() and hub.sent == 2 * SIZE


def test_a_damaged_reference_is_written_anew(hub: Hub) -> None:
    (path,) = fetch(SNAKE)
    main = store.folder_of(SNAKE.id) / "refs" / "main"
    main.write_bytes(b"\xff\xfe")
    assert fetch(SNAKE) == [path]
    assert main.read_text() == hub.repos[SNAKE.id].main


def test_huggingface_hubs_download_is_ours() -> None:
    path = hf_hub_download(SNAKE.id, "low/snake-Q8_0.gguf")
    model = look_up(SNAKE)
    assert bytes_on_disk(model) == model.size
    assert fetch(model) == [Path(path)]


def test_without_links_the_file_is_the_file(client: pytest.MonkeyPatch, hub: Hub) -> None:
    client.setattr(constants, "HF_HUB_DISABLE_SYMLINKS", True)
    (path,) = fetch(SNAKE)
    assert not path.is_symlink() and path.read_bytes() == TARGET.read_bytes()
    assert str(path) == hf_hub_download(SNAKE.id, "low/snake-Q8_0.gguf", local_files_only=True)
    fetch(SNAKE)
    assert hub.sent == SIZE and not scan_cache_dir(constants.HF_HUB_CACHE).warnings


def test_without_links_another_commit_takes_what_has_not_changed(
    client: pytest.MonkeyPatch, hub: Hub, tmp_path: Path
) -> None:
    client.setattr(constants, "HF_HUB_DISABLE_SYMLINKS", True)
    (before,) = fetch(SNAKE)
    hub.repos[SNAKE.id].push({"low/snake-Q8_0.gguf": TARGET, "README.md": Path(__file__)})
    (path,) = fetch(SNAKE)
    assert path != before and path.read_bytes() == before.read_bytes() == TARGET.read_bytes()
    assert hub.sent == SIZE and not scan_cache_dir(constants.HF_HUB_CACHE).warnings
    other = tmp_path / "other.gguf"
    other.write_bytes(TARGET.read_bytes()[:-1] + b"?")  # of the same size
    hub.repos[SNAKE.id].push({"low/snake-Q8_0.gguf": other})
    (path,) = fetch(SNAKE)
    assert path.read_bytes() == other.read_bytes() and before.read_bytes() == TARGET.read_bytes()


def test_without_links_what_has_not_changed_counts_and_is_checked(
    client: pytest.MonkeyPatch, hub: Hub, tmp_path: Path
) -> None:
    client.setattr(constants, "HF_HUB_DISABLE_SYMLINKS", True)
    fetch(SNAKE)
    hub.repos[SNAKE.id].push({"low/snake-Q8_0.gguf": TARGET, "README.md": Path(__file__)})
    model, told = look_up(SNAKE), list[str]()
    assert bytes_on_disk(model) == SIZE and not has_changed(model)
    (path,) = download([model], lambda progress: told.append(progress.state), lambda: False)
    assert told == ["checking", "done"] and hub.sent == SIZE
    other = tmp_path / "other.gguf"
    other.write_bytes(TARGET.read_bytes()[:-1] + b"?")  # of the same size
    hub.repos[SNAKE.id].push({"low/snake-Q8_0.gguf": other})
    model = look_up(SNAKE)
    assert bytes_on_disk(model) == 0 and has_changed(model)
    # Whoever writes into the file has another one, and what is not known is read.
    hub.repos[SNAKE.id].push({"low/snake-Q8_0.gguf": TARGET})
    for copy in path.parents[2].rglob("snake-Q8_0.gguf"):
        os.utime(copy, ns=(0, 10**18))
    model = look_up(SNAKE)
    assert bytes_on_disk(model) == 0 and not has_changed(model)
    fetch(model)
    assert hub.sent == SIZE


@pytest.mark.skipif(os.name != "posix", reason="capitals are none on Windows")
def test_a_name_written_otherwise_meanwhile_does_not_end_a_download(
    hub: Hub, tmp_path: Path
) -> None:
    """The repository is here as somebody wrote it, and another tool begins it anew."""
    here, theirs = (tmp_path / "hub" / f"models--{zoo}--snake-GGUF" for zoo in ("ZOO", "zoo"))
    here.mkdir(parents=True)
    if theirs.exists():
        pytest.skip("capitals are none on this disk")
    model = look_up(SNAKE)
    hub.faults.bytes_per_second = 2 * SIZE

    def begin(progress: FileProgress) -> None:
        if progress.state == "fetching":
            theirs.mkdir(exist_ok=True)

    (path,) = download([model], begin, lambda: False)
    assert path.read_bytes() == TARGET.read_bytes() and path.is_relative_to(here)
    assert theirs.exists() and (here / "refs" / "main").read_text() == model.commit


def test_what_was_interrupted_is_nothing_to_prune(hub: Hub) -> None:
    """`hf cache prune` deletes revisions that no reference leads to, and their repository."""
    told: list[str] = []
    model = look_up(SPLIT)
    hub.faults.bytes_per_second = 10e6
    with pytest.raises(KeyboardInterrupt):
        download([model], lambda progress: told.append(progress.state), lambda: "done" in told)
    cache = scan_cache_dir(constants.HF_HUB_CACHE)
    (repo,) = cache.repos
    assert {each.commit_hash: each.refs for each in repo.revisions} == {model.commit: {"main"}}
    assert repo.nb_files > 0 and not cache.warnings and 0 < bytes_on_disk(model) < model.size


def test_a_newer_commit_is_main_only_once_it_is_complete(hub: Hub) -> None:
    fetch(SNAKE)
    before = hub.repos[SNAKE.id].main
    hub.repos[SNAKE.id].push({"low/snake-Q8_0.gguf": DRAFTER})
    hub.faults.bytes_per_second = 1
    main = store.folder_of(SNAKE.id) / "refs" / "main"
    with pytest.raises(KeyboardInterrupt):
        download([look_up(SNAKE)], lambda _: None, lambda: hub.sent > SIZE)
    assert main.read_text() == before


def test_a_partial_file_of_another_user_is_named(client: pytest.MonkeyPatch) -> None:
    """Who may not write it: root may, so it is a folder here."""
    (cached,) = cached_files(look_up(SNAKE))
    cached.partial_path.mkdir(parents=True)
    message = why_not(LocalspecError, SNAKE)
    assert f"cannot write to {cached.partial_path} (" in message and "HF_HUB_CACHE" in message


def test_a_split_model_is_fetched_whole() -> None:
    (path,) = fetch(SPLIT)
    assert path.name == "split-00001-of-00003.gguf"
    assert [file.read_bytes() for file in files_of(path)] == [
        DRAFTER.read_bytes(),
        TARGET.read_bytes(),
        DRAFTER.read_bytes(),
    ]


def test_a_pair_comes_together_and_progress_is_told(hub: Hub) -> None:
    heard: dict[str, list[FileProgress]] = {}
    threads = set()

    def tell(progress: FileProgress) -> None:
        heard.setdefault(progress.file, []).append(progress)
        threads.add(threading.current_thread())

    hub.faults.bytes_per_second = 20e6
    models = [look_up(SNAKE), look_up(Repository("zoo/worm-GGUF"))]
    target, drafter = download(models, tell, lambda: False)
    assert target.read_bytes() == TARGET.read_bytes()
    assert drafter.read_bytes() == DRAFTER.read_bytes()
    assert threads == {threading.current_thread()}
    for file, total in (("low/snake-Q8_0.gguf", SIZE), ("worm-Q4_0.gguf", SMALL)):
        told = heard[file]
        states = [progress.state for progress in told]
        assert {progress.total for progress in told} == {total}
        assert [progress.done for progress in told] == sorted(progress.done for progress in told)
        assert "fetching" in states and states[-2:] == ["checking", "done"]
        assert told[-1].done == total


def test_trouble_of_the_storage_that_passes(hub: Hub) -> None:
    hub.faults.retry_after = 0
    hub.faults.statuses["cdn"] = [503, 429]
    assert fetch(SNAKE)[0].read_bytes() == TARGET.read_bytes()


def test_trouble_of_the_storage_that_stays(hub: Hub) -> None:
    hub.faults.statuses["cdn"] = [500] * 99
    message = why_not(HubError, SNAKE)
    assert "500" in message and hub.cdn.removeprefix("http://") in message and "kept" in message


def test_the_same_bytes_in_another_commit_are_not_fetched(hub: Hub) -> None:
    (before,) = fetch(SNAKE)
    hub.repos[SNAKE.id].push({"low/snake-Q8_0.gguf": TARGET, "README.md": Path(__file__)})
    (path,) = fetch(SNAKE)
    assert path != before and path.samefile(before) and hub.sent == SIZE
    assert store.find(SNAKE) == path


def test_a_wrong_hash_is_not_left_behind(hub: Hub, tmp_path: Path) -> None:
    hub.faults.wrong_bytes = True
    message = why_not(HubError, SNAKE)
    assert "low/snake-Q8_0.gguf" in message and "sha256" in message and "deleted" in message
    left = [name for name in left_in(tmp_path / "hub") if not name.endswith(".lock")]
    assert left == ["main"]  # the commit, which huggingface_hub leaves as well
    assert bytes_on_disk(look_up(SNAKE)) == 0 and store.find(SNAKE) is None


@pytest.mark.parametrize("before", ["", NO_LINKS], ids=["links", "no links"])
def test_two_at_once_fetch_it_once(hub: Hub, child: Child, before: str) -> None:
    hub.faults.bytes_per_second = 10e6
    running = partial(child.running, SNAKE.id, before=before)
    with running() as one, running() as other:
        outs = {process.communicate()[0] for process in (one, other)}
        assert (one.returncode, other.returncode) == (0, 0)
    (path,) = {Path(out.strip()) for out in outs}
    assert path.read_bytes() == TARGET.read_bytes()
    assert hub.sent == SIZE


def test_huggingface_hub_waits_for_us(hub: Hub, child: Child) -> None:
    model = look_up(SNAKE)
    hub.faults.bytes_per_second = 10e6
    with child.running(SNAKE.id) as ours:
        wait_for(lambda: 0 < bytes_on_disk(model) < SIZE)
        with child.running(SNAKE.id, "low/snake-Q8_0.gguf", code=FETCH_BY_HUGGINGFACE) as theirs:
            assert ours.communicate()[0] == theirs.communicate()[0] != ""
    assert hub.sent == SIZE


@pytest.mark.slow
def test_we_wait_for_huggingface_hub(hub: Hub, child: Child) -> None:
    states, model = set(), look_up(SNAKE)
    hub.faults.bytes_per_second = 2e6
    with child.running(SNAKE.id, "low/snake-Q8_0.gguf", code=FETCH_BY_HUGGINGFACE) as theirs:
        wait_for(lambda: hub.sent > 0)
        (path,) = download([model], lambda told: states.add(told.state), lambda: False)
        assert theirs.communicate()[0].strip() == str(path)
    assert states == {"waiting", "done"} and hub.sent == SIZE


@pytest.mark.parametrize(("token", "said"), [(None, "hf auth login"), (STRANGER, "no access")])
def test_what_is_gated_says_how_to_get_in(
    hub: Hub, client: pytest.MonkeyPatch, token: str | None, said: str
) -> None:
    if token:
        client.setenv("HF_TOKEN", token)
    message = why_not(HubError, GATED)
    assert "gated" in message and said in message and f"{hub.endpoint}/{GATED.id}" in message


def test_a_token_goes_to_the_hub_alone_and_is_never_told(hub: Hub, child: Child) -> None:
    loud = {"HF_TOKEN": SECRET, "HF_DEBUG": "1", "HF_HUB_VERBOSITY": "debug"}
    code, out, err = child(GATED.id, before=LOG_EVERYTHING, **loud)
    assert code == 0, err
    assert Path(out.strip()).read_bytes() == DRAFTER.read_bytes()
    assert f"{hub.cdn}/" in err  # the log has the requests
    assert SECRET not in out + err
    about_files = [request for request in hub.requests if "/agent" not in request.path]
    asked = {(request.origin, request.authorised) for request in about_files}
    assert asked == {("hub", True), ("cdn", False)}


def test_a_file_that_is_gone(hub: Hub) -> None:
    model = look_up(SNAKE)
    hub.repos[SNAKE.id].commits[model.commit].clear()
    assert "has changed" in why_not(ModelNotFoundError, model)


def test_offline_fetches_nothing(client: pytest.MonkeyPatch) -> None:
    model = look_up(SNAKE)
    client.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE" in why_not(HubError, model)


def test_what_does_not_fit_is_told_before() -> None:
    require_space([look_up(SNAKE)])
    with pytest.raises(LocalspecError, match=r"whale-GGUF.*: 1000000\.00 TB .*free.*HF_HUB_CACHE"):
        require_space([look_up(SNAKE), look_up(WHALE)])


def test_a_cache_that_cannot_be_written(client: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    client.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "file" / "hub"))
    require_space([look_up(SNAKE)])
    message = why_not(LocalspecError, SNAKE)
    assert "cannot write to" in message and "HF_HUB_CACHE" in message


def test_it_can_be_cancelled_while_the_server_is_silent(hub: Hub) -> None:
    hub.faults.bytes_per_second = 1  # and so, after the first bytes, nothing for hours
    model = look_up(SNAKE)
    with pytest.raises(KeyboardInterrupt):
        download([model], lambda _: None, lambda: hub.sent > 0)
    assert 0 <= bytes_on_disk(model) < SIZE


def test_a_name_that_no_disk_takes_is_refused_before_the_download(hub: Hub) -> None:
    sent = hub.sent
    model = look_up(LONG)
    for ask in (bytes_on_disk, lambda each: require_space([each]), fetch):
        with pytest.raises(
            LocalspecError, match=r"the file name n{60}\.\.\. is longer than 255 bytes"
        ):
            ask(model)
    assert hub.sent == sent
