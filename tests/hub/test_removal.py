"""What a removal takes from huggingface_hub's cache, and that this library finds the rest whole."""

import os
import subprocess
import sys
from pathlib import Path

import huggingface_hub.constants
import pytest
from fakes.hub_disk import FIRST, SECOND, HubDisk, write_split
from huggingface_hub import scan_cache_dir

from localspec.errors import LocalspecError
from localspec.hub.partial_files import partial_files
from localspec.hub.removal import RemovalPlan, plan_removal, remove, remove_outdated
from localspec.hub.store import hub_cache, models_of

REPO = "zoo/tiny-GGUF"


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HubDisk:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return HubDisk(tmp_path / "hub")


def removed(*files: str) -> RemovalPlan:
    planned = plan_removal(REPO, files)
    remove(planned)
    return planned


def left(disk: HubDisk) -> dict[str, int]:
    """Repositories as huggingface_hub sees them, with the bytes it counts."""
    scanned = scan_cache_dir(disk.folder)
    assert scanned.warnings == []
    return {repo.repo_id: repo.size_on_disk for repo in scanned.repos}


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def test_one_of_two_goes(disk: HubDisk) -> None:
    snapshot = disk.add(REPO, {"a-Q8_0.gguf": b"eight", "sub/a-Q4_0.gguf": b"four"})
    planned = removed("sub/a-Q4_0.gguf")
    assert planned.freed == 4 and not planned.whole
    assert left(disk) == {REPO: 5}
    assert [*snapshot.iterdir()] == [snapshot / "a-Q8_0.gguf"]
    assert len([*(disk.of(REPO) / "blobs").iterdir()]) == 1


@pytest.mark.parametrize(
    ("current", "freed"), [({"b" * 64}, 5), ({"e" * 64}, 0), ({"b" * 40}, 0), ({"b" * 64, ""}, 0)]
)
def test_what_was_begun_goes_only_where_every_hash_is_known(
    disk: HubDisk, current: set[str], freed: int
) -> None:
    disk.add(REPO, {"a-Q8_0.gguf": b"eight"})
    begun = disk.of(REPO) / "blobs" / f"{'e' * 64}.localspec.incomplete"
    begun.write_bytes(b"begun")
    assert remove_outdated(REPO, current) == freed
    assert begun.exists() == (not freed)


def test_where_no_lock_can_be_made_what_was_begun_stays(disk: HubDisk) -> None:
    disk.add(REPO, {"a-Q8_0.gguf": b"eight"})
    (hub_cache() / ".locks").touch()  # as on a disk that is read only
    assert remove_outdated(REPO, {"b" * 64}) == 0
    (disk.of(REPO) / "blobs" / f"{'e' * 64}.localspec.incomplete").write_bytes(b"begun")
    assert remove_outdated(REPO, {"b" * 64}) == 0
    with pytest.raises(LocalspecError, match=rf"^{REPO} cannot be deleted: .*\.locks.*; .*check"):
        removed("a-Q8_0.gguf")


@pytest.mark.skipif(os.name != "nt", reason="files that are open can be deleted")
def test_a_file_that_a_program_has_open(disk: HubDisk) -> None:
    disk.linked = False
    snapshot = disk.add(REPO, {"a-Q8_0.gguf": b"eight"})
    with (
        (snapshot / "a-Q8_0.gguf").open("rb"),
        pytest.raises(LocalspecError, match=r"cannot be deleted: .*; end the programs that use it"),
    ):
        removed("a-Q8_0.gguf")
    assert removed("a-Q8_0.gguf").whole


def test_with_the_last_one_goes_the_repository(disk: HubDisk) -> None:
    disk.add(REPO, {"a-Q8_0.gguf": b"eight"})
    disk.add("zoo/other", {"b-Q8_0.gguf": b"other"})
    (disk.of(REPO) / "blobs" / ("e" * 64)).write_bytes(b"nobody's")
    planned = removed("a-Q8_0.gguf")
    assert planned.whole and planned.freed == 5 + len(b"nobody's")
    assert left(disk) == {"zoo/other": 5}
    assert not disk.of(REPO).exists()


def test_every_revision_lets_go(disk: HubDisk) -> None:
    disk.add(REPO, {"a-Q8_0.gguf": b"eight"}, FIRST, "refs/pr/1")
    disk.add(REPO, {"a-Q8_0.gguf": b"eight", "a-Q4_0.gguf": b"four"}, SECOND)
    assert removed("a-Q8_0.gguf").freed == 5
    assert left(disk) == {REPO: 4}
    # Nothing was left of the older revision, so that its name would lead nowhere.
    assert files(disk.of(REPO) / "refs") == {"main"}
    assert [path.name for path in (disk.of(REPO) / "snapshots").iterdir()] == [SECOND]


def test_bytes_that_another_file_has_stay(disk: HubDisk) -> None:
    snapshot = disk.add(REPO, {"a-Q8_0.gguf": b"same", "b-Q8_0.gguf": b"same"})
    planned = removed("a-Q8_0.gguf")
    assert planned.freed == 0 and not planned.blobs
    assert (snapshot / "b-Q8_0.gguf").read_bytes() == b"same"
    assert left(disk) == {REPO: 4}


def test_a_split_model_goes_whole(disk: HubDisk, tmp_path: Path) -> None:
    parts = write_split(tmp_path / "big-Q8_0")
    disk.add(REPO, {**{part.name: part for part in parts}, "config.json": b"{}"})
    [stored] = models_of(REPO)
    size = stored.size
    assert removed(*stored.names.paths).freed == size == sum(part.stat().st_size for part in parts)
    assert left(disk) == {REPO: 2}


def test_copies_go_where_there_are_no_links(tmp_path: Path, disk: HubDisk) -> None:
    disk.linked = False
    disk.add(REPO, {"a-Q8_0.gguf": b"eight", "a-Q4_0.gguf": b"four"}, FIRST, None)
    disk.add(REPO, {"a-Q8_0.gguf": b"eight"}, SECOND)
    assert models_of(REPO)[1].size == 10
    assert removed("a-Q8_0.gguf").freed == 10
    assert left(disk) == {REPO: 4}
    assert not (disk.of(REPO) / "refs" / "main").exists()
    assert removed("a-Q4_0.gguf").whole
    assert left(disk) == {}


def test_what_a_link_of_ones_own_leads_to_stays(disk: HubDisk, tmp_path: Path) -> None:
    snapshot = disk.add(REPO, {"a-Q4_0.gguf": b"four"})
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(b"mine")
    (snapshot / "mine-Q8_0.gguf").symlink_to(mine)
    assert removed("mine-Q8_0.gguf").freed == 0
    assert mine.read_bytes() == b"mine"
    assert not (snapshot / "mine-Q8_0.gguf").is_symlink()
    assert removed("a-Q4_0.gguf").whole


def test_a_link_that_leads_nowhere_goes_too(disk: HubDisk) -> None:
    snapshot = disk.add(REPO, {"a-Q8_0.gguf": b"eight", "a-Q4_0.gguf": b"four"})
    (snapshot / "a-Q8_0.gguf").resolve().unlink()
    assert removed("a-Q8_0.gguf").freed == 0
    assert left(disk) == {REPO: 4}


def test_parts_of_it_go_and_parts_of_others_stay(disk: HubDisk) -> None:
    snapshot = disk.add(REPO, {"a-Q8_0.gguf": b"eight"})
    disk.part(REPO, (snapshot / "a-Q8_0.gguf").resolve().name, 3, "12345678.incomplete")
    other = disk.part(REPO, "b" * 64, 7, "localspec.incomplete")
    planned = removed("a-Q8_0.gguf")
    assert planned.freed == 5 + 3 and not planned.whole
    assert left(disk) == {REPO: 0}
    assert [part.path for part in partial_files(REPO)] == [other]
    planned = plan_removal(REPO, (), partial_files(REPO))
    assert planned.whole and planned.freed == 7
    remove(planned)
    assert not disk.of(REPO).exists()


# Holds the lock that huggingface_hub holds while it downloads, until its input ends.
DOWNLOADING = """
import sys
from huggingface_hub.utils import WeakFileLock
with WeakFileLock(sys.argv[1]):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_what_is_being_downloaded_stays(disk: HubDisk) -> None:
    snapshot = disk.add(REPO, {"a-Q8_0.gguf": b"eight"})
    blob = (snapshot / "a-Q8_0.gguf").resolve()
    lock = disk.folder / ".locks" / disk.of(REPO).name / f"{blob.name}.lock"
    lock.parent.mkdir(parents=True)
    with subprocess.Popen(
        [sys.executable, "-c", DOWNLOADING, str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout and other.stdout.readline() == "locked\n"
        with pytest.raises(LocalspecError, match=f"{REPO} is being downloaded"):
            removed("a-Q8_0.gguf")
        other.communicate("")
    assert left(disk) == {REPO: 5}
    removed("a-Q8_0.gguf")
    assert left(disk) == {}


def test_what_repositories_share_goes_with_the_last(disk: HubDisk) -> None:
    shared = pytest.importorskip("huggingface_hub.utils._shared_blobs")
    for repository in (REPO, "zoo/twin"):
        entry = disk.add(repository, {"a-Q8_0.gguf": b"shared"}) / "a-Q8_0.gguf"
        blob = disk.of(repository) / "blobs" / entry.readlink().name
        published = {"xet_hash": "c" * 64, "cache_dir": disk.folder, "expected_size": 6}
        assert shared.publish_blob_to_shared_store(blob_path=str(blob), **published)
    assert removed("a-Q8_0.gguf").freed == 0
    assert left(disk) == {"zoo/twin": 6}
    assert shared.shared_blob_path(disk.folder, "c" * 64).read_bytes() == b"shared"
    planned = plan_removal("zoo/twin", ["a-Q8_0.gguf"])
    assert planned.freed == 6
    remove(planned)
    assert left(disk) == {} and scan_cache_dir(disk.folder).size_on_disk == 0
