"""`localspec rm`: what it asks, what it deletes, and what it never does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.command_line import Done, localspec, own_folders
from fakes.hub_disk import HubDisk
from huggingface_hub import scan_cache_dir

from localspec.hub.partial_files import record_download
from localspec.models.registry import bundled

REPO = "zoo/tiny-GGUF"


def run(folder: Path, *arguments: str) -> Done:
    """`localspec rm`, with nothing on this machine but what is in the folder."""
    return localspec("rm", *arguments, **own_folders(folder))


@pytest.fixture
def disk(tmp_path: Path) -> HubDisk:
    disk = HubDisk(tmp_path / "hub")
    disk.add(REPO, {"tiny-Q8_0.gguf": b"8" * 3_000, "tiny-Q4_0.gguf": b"4" * 2_000})
    return disk


def left(disk: HubDisk) -> dict[str, int]:
    scanned = scan_cache_dir(disk.folder)
    assert scanned.warnings == []
    return {repo.repo_id: repo.size_on_disk for repo in scanned.repos}


def test_a_dry_run_deletes_nothing(disk: HubDisk, tmp_path: Path) -> None:
    done = run(tmp_path, f"{REPO}:Q4_0", "--dry-run")
    assert done.code == 0, done.err
    assert done.out == f"{REPO}: tiny-Q4_0.gguf (2.0 kB)\n"
    assert done.err == "localspec: 2.0 kB would be freed\n"
    assert left(disk) == {REPO: 5_000}


def test_nobody_to_ask(disk: HubDisk, tmp_path: Path) -> None:
    done = run(tmp_path, f"{REPO}:Q4_0")
    assert done.code == 2 and not done.out
    assert "--yes" in done.err.splitlines()[-1]
    assert left(disk) == {REPO: 5_000}


def test_one_and_then_the_other(disk: HubDisk, tmp_path: Path) -> None:
    done = run(tmp_path, f"{REPO}:q4_0", "--yes")
    assert done.code == 0 and not done.out
    assert done.err.endswith("localspec: 2.0 kB freed\n")
    assert left(disk) == {REPO: 3_000}
    # Now that there is one only, the repository names it.
    assert run(tmp_path, REPO, "--yes").code == 0
    assert left(disk) == {}


def test_several_at_once(disk: HubDisk, tmp_path: Path) -> None:
    path = disk.of(REPO) / "snapshots" / ("1" * 40) / "tiny-Q4_0.gguf"
    done = run(tmp_path, str(path), f"{REPO}:Q8_0", "--yes")
    assert done.code == 0, done.err
    assert f"{REPO}: tiny-Q4_0.gguf, tiny-Q8_0.gguf (5.0 kB)" in done.err
    assert not disk.of(REPO).exists()


def test_a_pair_names_its_target(disk: HubDisk, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "models.toml").write_text(f'[pairs.mine]\ntarget = "{REPO}"\n')
    assert run(tmp_path, "mine", "--yes").code == 0
    assert left(disk) == {REPO: 3_000}


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        (REPO, 3, f"name those to delete: {REPO}:Q4_0 {REPO}:Q8_0"),
        (f"{REPO}:Q2_K", 3, "is not on this machine, so there is nothing to delete"),
        ("zoo/none", 3, "is not on this machine, so there is nothing to delete"),
        ("qwen3-8b", 3, "is not on this machine, so there is nothing to delete"),
        ("terminal", 2, "'terminal' comes with localspec and cannot be deleted"),
        (__file__, 2, "delete a file of your own yourself"),
        (str(bundled().drafter), 2, "comes with localspec and cannot be deleted"),
    ],
)
def test_what_is_not_deleted(
    disk: HubDisk, tmp_path: Path, name: str, code: int, said: str
) -> None:
    # Where one of several is wrong, nothing goes.
    done = run(tmp_path, f"{REPO}:Q4_0", name, "--yes")
    assert done.code == code
    assert said in done.err and done.err.count("\n") == 1
    assert left(disk) == {REPO: 5_000}
    assert bundled().drafter.exists() and bundled().target.exists()


@pytest.mark.parametrize("beginning", ["Q2", "UD-Q4", "q4_k_xl"])
def test_a_beginning_deletes_nothing_and_is_told(tmp_path: Path, beginning: str) -> None:
    disk = HubDisk(tmp_path / "hub")
    disk.add(REPO, {"tiny-Q2_K_L.gguf": b"2" * 2_000, "tiny-UD-Q4_K_XL.gguf": b"4" * 4_000})
    done = run(tmp_path, f"{REPO}:{beginning}", "--yes")
    whole = "Q2_K_L" if beginning == "Q2" else "UD-Q4_K_XL"
    assert done.code == 3 and done.err.endswith(f"what begins so: {REPO}:{whole}\n")
    assert left(disk) == {REPO: 6_000}


def test_an_interrupted_download_is_not_its_longer_neighbour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    disk = HubDisk(tmp_path / "hub")
    disk.add(REPO, {"tiny-Q2_K_L.gguf": b"2" * 2_000})
    assert "is not on this machine" in run(tmp_path, f"{REPO}:Q2_K", "--yes").err
    record_download(REPO, "b" * 64, f"{REPO}:Q2_K", 9_000)
    disk.part(REPO, "b" * 64, 700, "localspec.incomplete")
    told = run(tmp_path, f"{REPO}:Q2", "--yes")
    assert told.code == 3 and f"{REPO}:Q2_K_L" in told.err and f"{REPO}:Q2_K\n" in told.err
    assert run(tmp_path, f"{REPO}:Q2_K", "--yes").err.endswith("localspec: 700 bytes freed\n")
    assert left(disk) == {REPO: 2_000}


def test_other_files_of_the_cache_stay(disk: HubDisk, tmp_path: Path) -> None:
    readme = disk.add("zoo/docs", {"README.md": b"text"}) / "README.md"
    assert run(tmp_path, str(readme), "--yes").code == 2
    assert readme.exists()


def test_what_was_never_fetched_whole(
    disk: HubDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    record_download(REPO, "b" * 64, f"{REPO}:Q2_K", 9_000)
    disk.part(REPO, "b" * 64, 700, "localspec.incomplete")
    disk.part("zoo/begun", "c" * 64, 70, "localspec.incomplete")
    done = run(tmp_path, f"{REPO}:q2_k", "zoo/begun", "--yes")
    assert done.code == 0, done.err
    assert done.err.endswith("localspec: 770 bytes freed\n")
    assert left(disk) == {REPO: 5_000}
    assert scan_cache_dir(disk.folder).incomplete_files == frozenset()


def gone(disk: HubDisk, name: str) -> None:
    """Delete the content of a file, as a user does by hand."""
    (entry,) = disk.of(REPO).glob(f"snapshots/*/{name}")
    entry.resolve().unlink()


def test_a_link_whose_file_is_gone(disk: HubDisk, tmp_path: Path) -> None:
    gone(disk, "tiny-Q4_0.gguf")
    done = run(tmp_path, f"{REPO}:q4_0", "--yes")
    assert done.code == 0, done.err
    assert left(disk) == {REPO: 3_000}


def test_the_other_parts_of_a_model_go_with_one_that_is_gone(disk: HubDisk, tmp_path: Path) -> None:
    parts = [f"split-Q6_K-0000{number}-of-00002.gguf" for number in (1, 2)]
    disk.add("zoo/split-GGUF", {part: b"6" * 4_000 + part.encode() for part in parts})
    (entry,) = disk.of("zoo/split-GGUF").glob(f"snapshots/*/{parts[0]}")
    entry.resolve().unlink()
    done = run(tmp_path, "zoo/split-GGUF:Q6_K", "--yes")
    assert done.code == 0 and done.err.endswith("localspec: 4.0 kB freed\n"), done.err
    assert left(disk) == {REPO: 5_000}


@pytest.mark.parametrize("all_gone", [False, True])
def test_nothing_is_left_where_only_links_would_be(
    disk: HubDisk, tmp_path: Path, all_gone: bool
) -> None:
    gone(disk, "tiny-Q4_0.gguf")
    if all_gone:
        gone(disk, "tiny-Q8_0.gguf")
    done = run(tmp_path, REPO, "--yes")
    assert done.code == 0, done.err
    assert not disk.of(REPO).exists()
    assert run(tmp_path, REPO, "--yes").code == 3


@pytest.mark.skipif(os.name != "posix", reason="POSIX terminals")
@pytest.mark.parametrize("answer", ["y", "n"])
def test_it_asks_on_a_terminal(disk: HubDisk, tmp_path: Path, answer: str) -> None:
    import pty

    screen, inside = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "localspec", "rm", f"{REPO}:Q4_0"],
        env={**os.environ, **own_folders(tmp_path)},
        stdin=inside,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        os.write(screen, f"{answer}\n".encode())
        shown, asked = running.communicate(timeout=60)
    os.close(inside)
    os.close(screen)
    assert running.returncode == 0 and not shown
    assert "Delete, and free 2.0 kB?" in asked
    assert left(disk) == {REPO: 3_000 if answer == "y" else 5_000}
