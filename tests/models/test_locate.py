"""From what a model is called to its file, in a Hub cache as huggingface_hub lays it out."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.errors import ModelNotFoundError
from localspec.hub.reference import Repository
from localspec.models import registry
from localspec.models.bundled_files import name_of
from localspec.models.locate import locate, reference_of, require_file

QWEN = "Qwen/Qwen3-8B-GGUF"
Download = Callable[..., Path]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hub cache, no pairs of the user's own, and an empty working folder."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


@pytest.fixture
def download(tmp_path: Path) -> Download:
    """Puts a file into the cache: its bytes into a blob, and a link to them into a revision."""

    def put(repository: str, file: str, *, revision: str = "abc123", main: bool = True) -> Path:
        folder = tmp_path / "hub" / f"models--{repository.replace('/', '--')}"
        blob = folder / "blobs" / f"{revision}-{file.replace('/', '-')}"
        link = folder / "snapshots" / revision / file
        for each in (blob, link, folder / "refs" / "main"):
            each.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(b"GGUF")
        link.symlink_to(os.path.relpath(blob, link.parent))
        if main:
            (folder / "refs" / "main").write_text(revision)
        return link

    return put


def refusal(name: str, others: tuple[str, ...] = ()) -> str:
    with pytest.raises(ModelNotFoundError) as raised:
        locate(name, others)
    return str(raised.value)


# What is meant


def test_a_path_that_exists_wins_over_a_name(download: Download) -> None:
    download(QWEN, "Qwen3-8B-Q4_K_M.gguf")
    Path("qwen3-8b").write_bytes(b"mine")
    Path("Qwen").mkdir()
    Path(QWEN).write_bytes(b"mine")
    assert locate("qwen3-8b") == Path("qwen3-8b")
    assert locate(QWEN) == Path(QWEN)


def test_a_path_object_is_never_a_name() -> None:
    assert locate(Path("qwen3-8b")) == Path("qwen3-8b")


def test_a_pairs_name_is_its_target(download: Download) -> None:
    file = download(QWEN, "Qwen3-8B-Q4_K_M.gguf")
    assert reference_of("qwen3-8b") == Repository(QWEN)
    assert locate("qwen3-8b") == locate("Qwen3-8B") == file


def test_the_bundled_pair_is_always_there() -> None:
    assert locate("terminal") == registry.bundled().target


def test_a_name_takes_a_quantisation(download: Download) -> None:
    download(QWEN, "Qwen3-8B-Q4_K_M.gguf")
    file = download(QWEN, "Qwen3-8B-Q8_0.gguf")
    assert reference_of("qwen3-8b:q8_0") == Repository(QWEN, "q8_0")
    assert locate("qwen3-8b:q8_0") == file


def test_a_tag_of_ollama_is_the_pair_of_that_name(download: Download, home: Path) -> None:
    """Where no pair is called as what stands before it."""
    file = download(QWEN, "Qwen3-8B-Q4_K_M.gguf")
    assert reference_of("qwen3:8b") == reference_of("Qwen3:8B") == Repository(QWEN)
    assert locate("qwen3:8b") == file
    assert reference_of("qwen3:8b:q8_0") == Repository(QWEN, "q8_0")
    assert reference_of("llama3.2:3b") == reference_of("llama3.2-3b")
    (home / "models.toml").write_text(
        '[pairs.mine]\ntarget = "me/mine"\n[pairs.mine-q4_0]\ntarget = "me/other"\n'
    )
    assert reference_of("mine:q4_0") == Repository("me/mine", "q4_0")


def test_a_quantisation_of_a_name_replaces_that_of_its_pair(home: Path) -> None:
    (home / "models.toml").write_text('[pairs.mine]\ntarget = "me/mine:Q4_K_M"\n')
    assert reference_of("mine") == Repository("me/mine", "Q4_K_M")
    assert reference_of("mine:Q8_0") == Repository("me/mine", "Q8_0")


def test_a_repository_is_the_best_of_what_was_downloaded(download: Download) -> None:
    eight = download("me/mine", "mine-Q8_0.gguf")
    assert locate("me/mine") == locate("hf.co/me/mine") == eight
    four = download("me/mine", "mine-Q4_K_M.gguf")
    assert locate("me/mine") == four
    assert locate("me/mine:q8_0") == locate("me/mine:mine-Q8_0.gguf") == eight


def test_a_users_pair_may_be_a_file(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.gguf"
    file.write_bytes(b"GGUF")
    (home / "models.toml").write_text(f'[pairs.mine]\ntarget = "{file}"\n')
    assert locate("mine") == file


# What is on disk


def test_a_split_model_is_its_first_part_once_all_are_there(download: Download) -> None:
    first = download("me/mine", "Q4_K_M/mine-00001-of-00002.gguf")
    assert "is not on this machine" in refusal("me/mine")
    download("me/mine", "Q4_K_M/mine-00002-of-00002.gguf")
    assert locate("me/mine") == locate("me/mine:q4_k_m") == first


def test_a_link_to_bytes_that_are_gone_is_not_there(download: Download) -> None:
    file = download("me/mine", "mine-Q4_K_M.gguf")
    eight = download("me/mine", "mine-Q8_0.gguf")
    file.resolve().unlink()
    assert file.is_symlink()
    assert locate("me/mine") == eight
    assert "is not on this machine" in refusal("me/mine:Q4_K_M")


def test_of_two_revisions_main_is_taken_then_the_newest(download: Download) -> None:
    old = download("me/mine", "mine-Q8_0.gguf", revision="old", main=False)
    new = download("me/mine", "mine-Q8_0.gguf", revision="new", main=False)
    os.utime(old.parent, (1, 1))
    assert locate("me/mine") == new
    main = download("me/mine", "mine-Q8_0.gguf", revision="main")
    os.utime(main.parent, (0, 0))
    assert locate("me/mine") == main


def test_another_revision_stands_in_for_what_main_has_not(download: Download) -> None:
    other = download("me/mine", "mine-Q4_K_M.gguf", revision="other", main=False)
    main = download("me/mine", "mine-Q8_0.gguf", revision="main")
    assert locate("me/mine:Q4_K_M") == other
    assert locate("me/mine:Q8_0") == main


def test_a_revision_without_the_model_is_passed_over(download: Download) -> None:
    file = download("me/mine", "mine-Q8_0.gguf", revision="other", main=False)
    download("me/mine", "config.json", revision="main")
    assert locate("me/mine") == file


# What is said where nothing is found


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (QWEN, f"{QWEN} is not on this machine; localspec pull {QWEN} fetches it"),
        ("me/mine:Q5_0", "me/mine:Q5_0 is not on this machine; localspec pull me/mine:Q5_0"),
        ("qwen3-8b", f"{QWEN} is not on this machine; localspec pull qwen3-8b fetches it"),
        ("qwen3-8b:q8_0", f"{QWEN}:q8_0 is not on this machine; localspec pull qwen3-8b:q8_0"),
        ("qwen3-8", "there is no model 'qwen3-8'; did you mean qwen3-8b"),
        ("qwen3:8b", f"{QWEN} is not on this machine; localspec pull qwen3:8b fetches it"),
        ("qwen3:8", "there is no model 'qwen3:8'; did you mean qwen3-8b?"),
        ("qwen3:80b", "there is no model 'qwen3:80b'; did you mean qwen3-8b"),
        ("GEMMA3-12", "there is no model 'GEMMA3-12'; did you mean gemma3-12b"),
        ("terminal:Q8_0", "there is no model 'terminal:Q8_0'; did you mean terminal?"),
        ("terminal-5m", "there is no model 'terminal-5m'; did you mean terminal-5m-q4_0?"),
        ("nonsense", "there is no model 'nonsense'; choose a path, user/repo[:quant]"),
        ("missing.gguf", "there is no model file missing.gguf; check the path"),
        ("models/missing.gguf", "there is no model file models/missing.gguf; check the path"),
        (
            "me/mine/low/mine-Q5_0.gguf",
            "there is no model file me/mine/low/mine-Q5_0.gguf; check the path, or write "
            "me/mine:low/mine-Q5_0.gguf for one of the Hub",
        ),
        ("me/mine@main", "there is no model file me/mine@main; check the path, or write me/mine"),
        ("hf:me/mine", "there is no model file hf:me/mine; check the path, or write me/mine for"),
        ("hf:me/mine:Q5_0", "there is no model file hf:me/mine:Q5_0; check the path, or write me"),
        ("/no/such/file", "there is no model file /no/such/file; check the path"),
        ("back\\slash", "there is no model file back\\slash; check the path"),
    ],
)
def test_a_model_that_is_not_there_says_what_to_do(name: str, said: str) -> None:
    assert refusal(name).startswith(said)


@pytest.mark.parametrize("name", ["terminal-5m-q4_0", "Terminal-5M-Q4_0.gguf"])
def test_a_file_that_comes_along_has_a_name(name: str) -> None:
    assert locate(name) == registry.bundled().drafter
    assert name_of(locate(name)) == "terminal-5m-q4_0"


def test_other_files_are_named_by_their_path(tmp_path: Path) -> None:
    assert name_of(tmp_path / "mine.gguf") == str(tmp_path / "mine.gguf")
    assert name_of(Repository("me/mine", "Q8_0")) == "me/mine:Q8_0"


def test_what_else_could_be_meant_is_suggested_too() -> None:
    assert refusal("sufix", ("auto", "suffix")).endswith("did you mean suffix?")
    assert "choose auto, suffix, a path" in refusal("nonsense", ("auto", "suffix"))


def test_a_reference_to_a_file_is_that_file(tmp_path: Path) -> None:
    assert require_file(tmp_path / "not-there.gguf") == tmp_path / "not-there.gguf"
