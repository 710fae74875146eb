"""What is found of huggingface_hub's cache, however broken the cache is."""

import os
from pathlib import Path

import huggingface_hub.constants
import pytest
from fakes.hub_disk import FIRST, SECOND, HubDisk, write_split

from localspec.errors import ModelNotFoundError
from localspec.hub import partial_files, renames, store
from localspec.hub.reference import Repository
from localspec.models.locate import locate

REPO = "zoo/tiny-GGUF"


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HubDisk:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return HubDisk(tmp_path / "hub")


@pytest.fixture(params=[REPO, "ZOO/tiny-GGUF"] if os.name == "posix" else [REPO])
def hub_spelling(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def names() -> list[str]:
    return [stored.name for stored in store.models_of(REPO)]


def test_every_model_is_found_by_its_name(disk: HubDisk, target_path: Path) -> None:
    disk.add(REPO, {"tiny-Q8_0.gguf": target_path, "sub/tiny-Q4_0.gguf": b"four"})
    disk.add("zoo/other", {"a.gguf": b"other", "mmproj-a.gguf": b"eyes", "README.md": b"text"})
    found = store.models()
    assert [stored.name for stored in found] == [
        "zoo/other:a.gguf",
        "zoo/tiny-GGUF:Q4_0",
        "zoo/tiny-GGUF:Q8_0",
    ]
    assert [stored.size for stored in found] == [5, 4, target_path.stat().st_size]
    for stored in found:
        assert locate(stored.name) == stored.files[0]


def test_a_repository_renamed_twice_is_found_by_every_name(disk: HubDisk) -> None:
    eight = disk.add(REPO, {"tiny-Q8_0.gguf": b"eight"})
    renames.record(REPO, "zoo/Small-GGUF")
    renames.record("ZOO/small-GGUF", "zoo/Least-GGUF")
    for id in ("zoo/least-gguf", "zoo/small-GGUF", REPO):
        assert locate(id) == eight / "tiny-Q8_0.gguf" and store.spelled(id) == REPO


def test_a_name_that_another_repository_got_means_the_renamed_one_no_longer(disk: HubDisk) -> None:
    other = "zoo/other"
    disk.add(other, {"other-Q8_0.gguf": b"other"})
    for old, new in ((REPO, "zoo/Small-GGUF"), ("zoo/Small-GGUF", "zoo/Least-GGUF")):
        renames.record(old, new)
    renames.record("zoo/before", other)
    # The newest name is its own: no name has become another's.
    assert renames.record("zoo/least-gguf", "zoo/Least-GGUF") is None
    assert renames.names_of(REPO) == [REPO.lower(), "zoo/small-gguf", "zoo/least-gguf"]
    assert renames.record("ZOO/small-GGUF", "zoo/Small-GGUF") == "zoo/Least-GGUF"
    for name in (REPO, "zoo/Small-GGUF", "zoo/Least-GGUF"):
        assert renames.names_of(name) == [name.lower()]
    assert store.spelled("zoo/before") == other
    renames.record("zoo/before", "zoo/third")
    assert store.spelled("zoo/before") == "zoo/before" and store.spelled(other) == other


def test_a_name_in_other_capitals_is_the_same_repository(disk: HubDisk) -> None:
    disk.add(REPO, {"tiny-Q8_0.gguf": b"eight"})
    asked = Repository("ZOO/Tiny-gguf")
    assert store.find(asked) == store.find(Repository(REPO))
    assert store.folder_of(asked.id) == store.folder_of(REPO)
    assert [stored.name for stored in store.models_of(asked.id)] == names() == [f"{REPO}:Q8_0"]
    assert store.spelled(asked.id) == REPO
    assert store.spelled("zoo/Other") == "zoo/Other"


def test_a_disk_that_ignores_capitals_says_how_a_repository_is_written_on_it(
    disk: HubDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.add(REPO, {"tiny-Q8_0.gguf": b"eight"})
    real = Path.is_dir

    def is_dir(path: Path) -> bool:
        known = {each.name.lower() for each in disk.folder.iterdir()}
        return path.name.lower() in known or real(path)

    monkeypatch.setattr(Path, "is_dir", is_dir)
    assert store.spelled("ZOO/Tiny-gguf") == REPO
    assert [stored.name for stored in store.models_of("ZOO/Tiny-gguf")] == names()


def test_a_renamed_repository_is_found_by_both_names(disk: HubDisk) -> None:
    eight = disk.add(REPO, {"tiny-Q8_0.gguf": b"eight"})
    renames.record(REPO, "zoo/Large-GGUF")
    for id in ("zoo/Large-GGUF", "ZOO/large-gguf", REPO):
        assert locate(id) == eight / "tiny-Q8_0.gguf" and store.spelled(id) == REPO
    own = disk.add("zoo/Large-GGUF", {"large-Q4_0.gguf": b"four"})
    assert locate("zoo/large-GGUF:Q4_0") == own / "large-Q4_0.gguf"
    assert locate("zoo/large-GGUF:Q8_0") == eight / "tiny-Q8_0.gguf"


@pytest.mark.skipif(os.name != "posix", reason="capitals are none on Windows")
def test_what_is_here_twice_in_two_spellings_is_found_in_both(disk: HubDisk) -> None:
    eight = disk.add(REPO, {"tiny-Q8_0.gguf": b"eight"})
    if (disk.folder / "models--ZOO--tiny-GGUF").exists():
        pytest.skip("capitals are none on this disk")
    four = disk.add("ZOO/tiny-GGUF", {"tiny-Q4_0.gguf": b"four"})
    for id in (REPO, "ZOO/tiny-GGUF", "zoo/TINY-gguf"):
        assert store.find(Repository(id, "Q8_0")) == eight / "tiny-Q8_0.gguf"
        assert store.find(Repository(id, "Q4_0")) == four / "tiny-Q4_0.gguf"
        assert store.find(Repository(id)) == four / "tiny-Q4_0.gguf"
    assert [stored.name for stored in store.models()] == ["ZOO/tiny-GGUF:Q4_0", f"{REPO}:Q8_0"]


def test_what_revisions_share_is_counted_once(disk: HubDisk) -> None:
    disk.add(REPO, {"tiny-Q8_0.gguf": b"eight", "gone-Q4_0.gguf": b"four"}, FIRST, None)
    new = disk.add(REPO, {"tiny-Q8_0.gguf": b"eight"}, SECOND)
    os.utime(new, (0, 0))  # older, but it is main
    four, eight = store.models_of(REPO)
    assert eight.files == (new / "tiny-Q8_0.gguf",)
    assert eight.size == 5
    # What only an older revision has can be used all the same.
    assert locate(four.name) == four.files[0]


def test_other_bytes_in_an_older_revision_count(disk: HubDisk) -> None:
    disk.add(REPO, {"tiny-Q8_0.gguf": b"eight"}, FIRST, None)
    disk.add(REPO, {"tiny-Q8_0.gguf": b"eight, mended"}, SECOND)
    [stored] = store.models_of(REPO)
    assert stored.size == len(b"eight") + len(b"eight, mended")


def test_a_split_model_is_one(disk: HubDisk, tmp_path: Path) -> None:
    first, second = write_split(tmp_path / "big-Q8_0")
    snapshot = disk.add(REPO, {first.name: first, second.name: second})
    [stored] = store.models_of(REPO)
    assert stored.name == f"{REPO}:Q8_0"
    assert stored.files == (snapshot / first.name, snapshot / second.name)
    assert stored.size == first.stat().st_size + second.stat().st_size
    (snapshot / second.name).unlink()
    assert names() == []


def test_models_of_the_same_quantisation_are_named_by_their_files(disk: HubDisk) -> None:
    disk.add(REPO, {"a-Q8_0.gguf": b"a", "b-Q8_0.gguf": b"b"})
    disk.add(REPO, {"old-Q8_0.gguf": b"old"}, SECOND, None)
    assert names() == [f"{REPO}:a-Q8_0.gguf", f"{REPO}:b-Q8_0.gguf", f"{REPO}:old-Q8_0.gguf"]
    for stored in store.models_of(REPO):
        assert locate(stored.name) == stored.files[0]


def test_a_quantisation_names_what_main_has(disk: HubDisk) -> None:
    disk.add(REPO, {"renamed-Q8_0.gguf": b"old"}, FIRST, None)
    disk.add(REPO, {"tiny-Q8_0.gguf": b"new"}, SECOND)
    assert names() == [f"{REPO}:renamed-Q8_0.gguf", f"{REPO}:Q8_0"]
    for stored in store.models_of(REPO):
        assert locate(stored.name) == stored.files[0]


def test_a_name_means_the_same_model_where_another_came_from_a_newer_revision(
    disk: HubDisk,
) -> None:
    old = disk.add(REPO, {"tiny-Q4_K_M.gguf": b"four"}, FIRST)
    before = store.find(Repository(REPO))
    disk.add(REPO, {"tiny-Q8_0.gguf": b"eight", "mtp-tiny.gguf": b"head"}, SECOND)
    assert before == store.find(Repository(REPO)) == old / "tiny-Q4_K_M.gguf"
    third = disk.add(REPO, {"tiny-Q4_K_M.gguf": b"four, mended"}, "3" * 40)
    assert store.find(Repository(REPO)) == third / "tiny-Q4_K_M.gguf"


def test_a_drafter_from_a_newer_revision_is_not_taken_for_the_model(disk: HubDisk) -> None:
    old = disk.add(REPO, {"tiny-Q2_K.gguf": b"two"}, FIRST)
    disk.add(REPO, {"mtp-tiny-Q4_K_M.gguf": b"head"}, SECOND)
    assert store.find(Repository(REPO)) == old / "tiny-Q2_K.gguf"


def test_a_whole_name_comes_before_what_begins_so(disk: HubDisk, hub_spelling: str) -> None:
    old = disk.add(hub_spelling, {"tiny-Q6_K.gguf": b"six", "tiny-Q4_0.gguf": b"4"}, FIRST, None)
    new = disk.add(REPO, {"tiny-Q6_K_L.gguf": b"large", "tiny-UD-Q4_K_XL.gguf": b"4"}, SECOND)
    assert locate(f"{REPO}:Q6_K") == old / "tiny-Q6_K.gguf"
    assert locate(f"{REPO}:Q4_K_XL") == locate(f"{REPO}:Q4") == new / "tiny-UD-Q4_K_XL.gguf"
    assert locate(f"{REPO}:Q6") == old / "tiny-Q6_K.gguf"
    for stored in store.models():
        assert locate(stored.name) == stored.files[0]
    with pytest.raises(ModelNotFoundError, match="Q4_K is not on this machine"):
        locate(f"{REPO}:Q4_K")


def test_what_begins_so_and_is_not_unique_is_told(disk: HubDisk) -> None:
    disk.add(REPO, {"small-Q4_0.gguf": b"1", "large-Q4_0.gguf": b"2"})
    for asked in ("Q4", "Q4_0"):
        with pytest.raises(ModelNotFoundError, match=r"\(large-Q4_0.gguf, small-Q4_0.gguf\)"):
            locate(f"{REPO}:{asked}")


def test_endings_in_capitals_are_those_of_models(disk: HubDisk) -> None:
    disk.add(REPO, {"tiny-Q8_0.GGUF": b"eight"})
    assert [stored.name for stored in store.models()] == [f"{REPO}:Q8_0"]


def test_a_broken_cache_is_read_as_far_as_it_goes(disk: HubDisk) -> None:
    snapshot = disk.add(REPO, {"tiny-Q8_0.gguf": b"eight", "lost-Q4_0.gguf": b"four"})
    (snapshot / "lost-Q4_0.gguf").resolve().unlink()
    (snapshot / "turns-Q2_K.gguf").symlink_to("turns-Q2_K.gguf")
    (snapshot / "folder-Q2_K.gguf").mkdir()
    (disk.of(REPO) / "refs" / "main").write_bytes(b"\xff\xfe")
    (disk.of(REPO) / "snapshots" / "note.txt").write_text("no folder")
    disk.of("zoo/empty").mkdir()
    disk.of("zoo/file").write_text("no folder")
    (disk.folder / "models--").mkdir()
    (disk.folder / "models--alone").mkdir()
    (disk.folder / "datasets--zoo--data").mkdir()
    (disk.folder / "stray.gguf").write_bytes(b"stray")
    assert store.repositories() == ["zoo/empty", REPO]
    assert [stored.name for stored in store.models()] == [f"{REPO}:Q8_0"]


def test_no_cache_at_all_holds_nothing(disk: HubDisk) -> None:
    disk.clear()
    assert store.repositories() == [] and store.find(Repository(REPO)) is None


def test_parts_are_told_from_whole_files(disk: HubDisk) -> None:
    disk.add(REPO, {"tiny-Q8_0.gguf": b"eight"})
    disk.part(REPO, "a" * 64, 7, "12345678.incomplete")
    disk.part(REPO, "b" * 64, 9, "localspec.incomplete")
    partial_files.record_download(REPO, "b" * 64, f"{REPO}:Q4_0", 100)
    theirs, ours = partial_files.partial_files(REPO)
    assert (theirs.blob, theirs.size, theirs.resumable) == ("a" * 64, 7, False)
    assert theirs.model is None and theirs.total is None
    assert (ours.blob, ours.size, ours.resumable) == ("b" * 64, 9, True)
    assert (ours.model, ours.total) == (f"{REPO}:Q4_0", 100)
    assert partial_files.partial_files("zoo/nothing") == []
